//! The attributes of the spans that were read before, by their encoding: the next model call of a run repeats most of
//! its history and settings, which are then not read again.

use verdict_otlp::Value;

use super::flat_attribute::FlatAttribute;
use super::overrides::LeafKind;
use super::statement::AttributeStatement;
use super::table::{FlattenedList, KeyMeaning, Leaf, parse_index};

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
    /// The statement of the value about its span.
    pub(super) statement: AttributeStatement,
}

/// Leaves of the prompt of a short run.
const USUAL_LEAVES: usize = 32;
/// Places of keys. The spans of a trace have some forty.
const KEYS: usize = 64;
/// Places of the ends of keys of flattened lists, of which a convention uses about ten.
const LEAVES: usize = 16;
/// Places of attributes. A model call has some twenty, and few kinds of spans occur in one trace.
const KNOWN: usize = 128;

/// The spans before the present one.
#[derive(Debug)]
pub(crate) struct EarlierSpans<'a> {
    /// The attributes of flattened lists of the last span that has any.
    before: Vec<ListAttribute<'a>>,
    /// The position of the next one of them.
    next: usize,
    /// The attributes of the present span are the first `repeated_count` attributes of `before`, followed by `present`.
    repeated_count: usize,
    present: Vec<ListAttribute<'a>>,
    /// The run at the beginning of `before`, and that of the present span.
    run: ListRun<'a>,
    present_run: PresentRun<'a>,
    /// The list of the present span's last attribute of one, and the part of its key before the index.
    pub(super) last: Option<(&'a FlattenedList, &'a [u8])>,
    /// Keys by [`place`], with their meanings, if they have any: most spans of a trace have the same.
    keys: [(&'a [u8], Option<&'a KeyMeaning>); KEYS],
    /// The ends of keys of lists, after the index, by [`place`].
    leaves: [Option<KnownLeaf<'a>>; LEAVES],
    /// Other attributes by [`place`]: the spans of a run have the same model, session and instructions. Empty before
    /// the first one; `None` if only one span is read.
    known_attributes: Option<Vec<Option<KnownAttribute<'a>>>>,
}

/// The end of a key of a list: the list, its bytes, and its inner index and meaning, if it has one.
type KnownLeaf<'a> = (&'a FlattenedList, &'a [u8], Option<(u32, LeafKind)>);

/// The first attributes of a span that belong to lists, if they belong to one list and directly follow each other. The
/// next prompt begins with those of this one, which is one comparison.
#[derive(Debug, Default)]
struct ListRun<'a> {
    /// The encoded fields after that of the first attribute.
    encoded: &'a [u8],
    /// One leaf for each attribute.
    leaves: Vec<FlatAttribute<'a>>,
}

/// A [`ListRun`] that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct PresentRun<'a> {
    list: Option<&'a FlattenedList>,
    /// The fields after that of the first attribute, to the end of the span, and how many bytes of them are left after
    /// the last attribute.
    after_first: &'a [u8],
    left: usize,
    /// The number of attributes.
    len: usize,
    /// How many of them are those of the earlier run.
    repeated_count: usize,
}

/// The place of a key, or of an encoded attribute, among `places`.
#[inline]
fn place(bytes: &[u8], places: usize) -> usize {
    let byte = |at: Option<&u8>| at.copied().map_or(0, usize::from);
    // The second byte of an encoded attribute is the length of its key.
    (bytes.len() + byte(bytes.last()) + 5 * byte(bytes.get(1))) % places
}

impl<'a> EarlierSpans<'a> {
    /// For a single span.
    pub(crate) fn none() -> Self {
        EarlierSpans {
            before: Vec::new(),
            next: 0,
            repeated_count: 0,
            present: Vec::new(),
            run: ListRun::default(),
            present_run: PresentRun::default(),
            last: None,
            keys: [(&[], None); KEYS],
            leaves: [None; LEAVES],
            known_attributes: None,
        }
    }

    /// For the spans of a trace.
    pub(crate) fn for_trace() -> Self {
        EarlierSpans { known_attributes: Some(Vec::new()), ..EarlierSpans::none() }
    }

    pub(super) fn begin_span(&mut self) {
        (self.next, self.repeated_count, self.last) = (0, 0, None);
        self.present_run = PresentRun::default();
    }

    /// `flat` are the leaves of the span in the order of its attributes.
    pub(super) fn end_span(&mut self, flat: &[FlatAttribute<'a>]) {
        if self.repeated_count > 0 || !self.present.is_empty() {
            self.before.truncate(self.repeated_count);
            self.before.append(&mut self.present);
            let PresentRun { after_first, left, len, repeated_count, .. } = self.present_run;
            self.run.encoded = after_first.get(..after_first.len() - left).unwrap_or_default();
            self.run.leaves.truncate(repeated_count);
            if len > self.run.leaves.capacity() {
                self.run.leaves.reserve(len + USUAL_LEAVES);
            }
            self.run.leaves.extend_from_slice(flat.get(repeated_count..len).unwrap_or_default());
        }
    }

    /// The leaves of the attributes in `rest` that follow the first one as in the earlier run, and what comes after
    /// them. They become attributes of the present span. At most `max_leaves` leaves.
    pub(super) fn repeated_run(
        &mut self,
        rest: &'a [u8],
        max_leaves: usize,
    ) -> Option<(&[FlatAttribute<'a>], &'a [u8])> {
        let all = self.run.leaves.len();
        if (self.next, self.repeated_count, self.present_run.len) != (1, 1, 1)
            || !(2..=max_leaves).contains(&all)
        {
            return None;
        }
        let after = rest.strip_prefix(self.run.encoded)?;
        (self.next, self.repeated_count) = (all, all);
        self.present_run =
            PresentRun { left: after.len(), len: all, repeated_count: all, ..self.present_run };
        Some((self.run.leaves.get(1..)?, after))
    }

    /// Extends the present run by the last attribute, if it continues it. `before` and `rest` are the fields of the
    /// span from it and after it, `leaves` the number of leaves so far, in their order.
    pub(super) fn extend_run(&mut self, before: &[u8], rest: &'a [u8], leaves: usize) {
        let run = &mut self.present_run;
        let attributes = self.repeated_count + self.present.len();
        let list = self.last.map(|(list, _)| list).filter(|list| !list.entry.is_statement);
        if attributes != run.len + 1 || leaves != attributes || list.is_none() {
            return;
        }
        if run.len == 0 {
            *run = PresentRun { list, after_first: rest, left: rest.len(), len: 1, repeated_count: 0 };
        } else if run.left == before.len() && run.list.zip(list).is_some_and(|(a, b)| std::ptr::eq(a, b)) {
            (run.left, run.len) = (rest.len(), attributes);
        }
    }

    /// Number of attributes of lists of the last span that has any.
    pub(super) fn list_len(&self) -> usize {
        self.before.len()
    }

    /// The attribute of a list that the last span has at the same place, which becomes one of the present span.
    #[inline]
    pub(super) fn repeated_in_list(&mut self, encoded: &[u8]) -> Option<&ListAttribute<'a>> {
        let attribute = self.before.get(self.next).filter(|attribute| attribute.encoded == encoded)?;
        self.last = Some((attribute.list, attribute.head));
        self.next += 1;
        match self.present.is_empty() {
            true => self.repeated_count = self.next,
            false => self.present.push(*attribute),
        }
        Some(attribute)
    }

    /// Adds an attribute of a list to the present span.
    pub(super) fn add_to_list(&mut self, read: ListAttribute<'a>) {
        self.last = Some((read.list, read.head));
        self.next +=
            usize::from(self.before.get(self.next).is_some_and(|attribute| attribute.key == read.key));
        self.present.push(read);
    }

    #[inline]
    pub(super) fn known_attribute(&self, encoded: &[u8]) -> Option<&KnownAttribute<'a>> {
        let attribute = self.known_attributes.as_ref()?.get(place(encoded, KNOWN))?.as_ref();
        attribute.filter(|candidate| candidate.encoded == encoded)
    }

    pub(super) fn add(&mut self, read: KnownAttribute<'a>) {
        let Some(attributes) = &mut self.known_attributes else { return };
        if attributes.is_empty() {
            attributes.resize(KNOWN, None);
        }
        attributes[place(read.encoded, KNOWN)] = Some(read);
    }

    /// The meaning of a key that an earlier attribute has; `Some(None)` if it has none.
    #[inline]
    pub(super) fn meaning(&self, key: &[u8]) -> Option<Option<&'a KeyMeaning>> {
        let (known_key, meaning) = self.keys[place(key, KEYS)];
        (known_key == key && !key.is_empty()).then_some(meaning)
    }

    /// Adds a key that belongs to no list or map.
    pub(super) fn add_key(&mut self, key: &'a [u8], meaning: Option<&'a KeyMeaning>) {
        self.keys[place(key, KEYS)] = (key, meaning);
    }

    /// As [`FlattenedList::leaf`], of a list that earlier attributes belong to.
    pub(super) fn leaf(&mut self, list: &'a FlattenedList, end: &'a [u8]) -> Option<(u32, LeafKind)> {
        // The lists of inputs and outputs have keys with the same ends.
        let slot = &mut self.leaves[(place(end, LEAVES) + std::ptr::from_ref(list).addr() / 64) % LEAVES];
        match slot {
            Some((known_list, known_end, leaf)) if std::ptr::eq(*known_list, list) && *known_end == end => {
                *leaf
            }
            _ => slot.insert((list, end, list.leaf(end))).2,
        }
    }
}

impl<'a> ListAttribute<'a> {
    /// `leaf` is [`FlattenedList::leaf`] or its equal.
    pub(super) fn new(
        encoded: &'a [u8],
        (list, head): (&'a FlattenedList, &'a [u8]),
        key: &'a [u8],
        value: Value<'a>,
        leaf: impl FnOnce(&'a FlattenedList, &'a [u8]) -> Option<(u32, LeafKind)>,
    ) -> ListAttribute<'a> {
        let index = parse_index(key.get(head.len()..).unwrap_or_default());
        let leaf = index.and_then(|(index, end)| {
            let (inner_index, kind) = leaf(list, end)?;
            Some(Leaf { index, inner_index, kind })
        });
        ListAttribute { encoded, list, key, head, leaf, value }
    }
}
