//! The attributes of the spans that were read before, by their encoding: the next model call of a run repeats most of
//! its history and settings, which are then not read again.

use verdict_otlp::Value;

use super::table::{FlattenedList, KeyMeaning, Leaf};

/// An attribute of a flattened list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListAttribute<'a> {
    /// Key and value, encoded.
    pub(super) encoded: &'a [u8],
    pub(super) list: &'a FlattenedList,
    pub(super) key: &'a [u8],
    /// The part of the key before the index.
    pub(super) head: &'a [u8],
    pub(super) leaf: Option<Leaf>,
    pub(super) value: Value<'a>,
}

/// An attribute of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownAttribute<'a> {
    /// Key and value, encoded.
    pub(super) encoded: &'a [u8],
    pub(super) entry: &'a KeyMeaning,
    pub(super) key: &'a [u8],
    pub(super) value: Value<'a>,
}

/// Places of keys without a meaning.
const UNKNOWN: usize = 16;
/// Places of attributes. A model call has some twenty, and few kinds of spans occur in one trace.
const KNOWN: usize = 64;

/// The spans before the present one.
#[derive(Debug, Default)]
pub(crate) struct EarlierSpans<'a> {
    /// The attributes of flattened lists of the last span that has any.
    before: Vec<ListAttribute<'a>>,
    /// The position of the next one of them.
    next: usize,
    /// Those of the present span are the first `same` ones of `before` and then `present`.
    same: usize,
    present: Vec<ListAttribute<'a>>,
    /// The list of the present span's last attribute of one, and the part of its key before the index.
    pub(super) last: Option<(&'a FlattenedList, &'a [u8])>,
    /// Keys without a meaning, by [`place`]: most spans of a trace have the same.
    unknown: [&'a [u8]; UNKNOWN],
    /// Other attributes by [`place`]: the spans of a run have the same model, session and instructions. Empty before
    /// the first one; `None` if only one span is read.
    known: Option<Vec<Option<KnownAttribute<'a>>>>,
}

/// The place of a key, or of an encoded attribute, among so many.
fn place(of: &[u8], places: usize) -> usize {
    (of.len() + of.last().map_or(0, |last| usize::from(*last))) % places
}

impl<'a> EarlierSpans<'a> {
    /// For the spans of a trace.
    pub(crate) fn of_trace() -> Self {
        EarlierSpans { known: Some(Vec::new()), ..EarlierSpans::default() }
    }

    pub(super) fn begin_span(&mut self) {
        (self.next, self.same, self.last) = (0, 0, None);
    }

    pub(super) fn end_span(&mut self) {
        if self.same > 0 || !self.present.is_empty() {
            self.before.truncate(self.same);
            self.before.append(&mut self.present);
        }
    }

    /// Number of attributes of lists of the last span that has any.
    pub(super) fn list_len(&self) -> usize {
        self.before.len()
    }

    /// The attribute of a list that the last span has at the same place, which becomes one of the present span.
    #[inline]
    pub(super) fn repeated_in_list(&mut self, encoded: &[u8]) -> Option<&ListAttribute<'a>> {
        let same = self.before.get(self.next).filter(|known| known.encoded == encoded)?;
        self.last = Some((same.list, same.head));
        self.next += 1;
        match self.present.is_empty() {
            true => self.same = self.next,
            false => self.present.push(*same),
        }
        Some(same)
    }

    /// Adds an attribute of a list to the present span.
    pub(super) fn add_to_list(&mut self, read: ListAttribute<'a>) {
        self.last = Some((read.list, read.head));
        self.next += usize::from(self.before.get(self.next).is_some_and(|known| known.key == read.key));
        self.present.push(read);
    }

    #[inline]
    pub(super) fn known(&self, encoded: &[u8]) -> Option<&KnownAttribute<'a>> {
        let known = self.known.as_ref()?.get(place(encoded, KNOWN))?.as_ref();
        known.filter(|known| known.encoded == encoded)
    }

    pub(super) fn add(&mut self, read: KnownAttribute<'a>) {
        let Some(known) = &mut self.known else { return };
        if known.is_empty() {
            known.resize(KNOWN, None);
        }
        known[place(read.encoded, KNOWN)] = Some(read);
    }

    #[inline]
    pub(super) fn is_unknown(&self, key: &[u8]) -> bool {
        !key.is_empty() && self.unknown[place(key, UNKNOWN)] == key
    }

    pub(super) fn add_unknown(&mut self, key: &'a [u8]) {
        self.unknown[place(key, UNKNOWN)] = key;
    }
}

impl<'a> ListAttribute<'a> {
    pub(super) fn new(
        encoded: &'a [u8],
        (list, head): (&'a FlattenedList, &'a [u8]),
        key: &'a [u8],
        value: Value<'a>,
    ) -> ListAttribute<'a> {
        let leaf = list.leaf(key.get(head.len()..).unwrap_or_default());
        ListAttribute { encoded, list, key, head, leaf, value }
    }
}
