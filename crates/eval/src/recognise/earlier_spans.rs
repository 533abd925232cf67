//! A cache of the attributes of earlier spans, by their encoding: each model call of a run repeats most of the history
//! and settings of the previous model call, which are then not decoded again.

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

/// An attribute that belongs to no list.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownAttribute<'a> {
    /// Key and value, encoded.
    pub(super) encoded: &'a [u8],
    pub(super) entry: &'a KeyMeaning,
    pub(super) key: &'a [u8],
    pub(super) value: Value<'a>,
    /// The statement that the value makes about its span.
    pub(super) statement: AttributeStatement,
}

/// The usual number of leaves of the prompt of a short run.
const USUAL_LEAVES: usize = 32;
/// Number of cached keys. The spans of a trace have some forty.
const KEY_SLOTS: usize = 64;
/// Number of cached suffixes of keys of flattened lists, of which a convention uses about ten.
const LEAF_SLOTS: usize = 16;
/// Number of cached attributes. A model call has some twenty, and few kinds of spans occur in one trace.
const ATTRIBUTE_SLOTS: usize = 128;

/// The cached attributes of the spans before the current one.
#[derive(Debug)]
pub(crate) struct EarlierSpans<'a> {
    /// The attributes of flattened lists of the last span that has any.
    previous: Vec<ListAttribute<'a>>,
    /// The index in `previous` at which the next attribute of the current span is expected.
    next_index: usize,
    /// The attributes of the current span are the first `repeated_count` attributes of `previous`, then `current`.
    repeated_count: usize,
    current: Vec<ListAttribute<'a>>,
    /// The run at the beginning of `previous`, and that of the current span.
    run: ListRun<'a>,
    current_run: CurrentRun<'a>,
    /// The list of the last list attribute of the current span, and the part of its key before the index.
    pub(super) last_list: Option<(&'a FlattenedList, &'a [u8])>,
    /// Keys by [`slot_of`], with their meanings, if they have any: most spans of a trace have the same keys.
    keys: [(&'a [u8], Option<&'a KeyMeaning>); KEY_SLOTS],
    /// The suffixes of keys of lists, after the index, by [`slot_of`].
    leaves: [Option<KnownLeaf<'a>>; LEAF_SLOTS],
    /// Other attributes by [`slot_of`]: the spans of a run have the same model, session and instructions. Empty until
    /// one is added; `None` if only one span is read.
    known_attributes: Option<Vec<Option<KnownAttribute<'a>>>>,
}

/// The suffix of a key of a list: the list, the bytes of the suffix, and its inner index and meaning; `None` if it has
/// no meaning.
type KnownLeaf<'a> = (&'a FlattenedList, &'a [u8], Option<(u32, LeafKind)>);

/// The consecutive attributes of one list with which the list attributes of a span begin. The next prompt repeats them,
/// so that one comparison recognises all of them.
#[derive(Debug, Default)]
struct ListRun<'a> {
    /// The encoded fields after the field of the first attribute.
    encoded: &'a [u8],
    /// One leaf for each attribute.
    leaves: Vec<FlatAttribute<'a>>,
}

/// A [`ListRun`] that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentRun<'a> {
    list: Option<&'a FlattenedList>,
    /// The fields after the field of the first attribute, to the end of the span.
    after_first: &'a [u8],
    /// The number of bytes of `after_first` that follow the last attribute of the run.
    bytes_after_run: usize,
    /// The number of attributes.
    len: usize,
    /// The number of attributes that repeat the earlier run.
    repeated_count: usize,
}

/// The slot of a key, or of an encoded attribute, among `slots`.
#[inline]
fn slot_of(bytes: &[u8], slots: usize) -> usize {
    let number = |byte: Option<&u8>| byte.copied().map_or(0, usize::from);
    // The second byte of an encoded attribute is the length of its key.
    (bytes.len() + number(bytes.last()) + 5 * number(bytes.get(1))) % slots
}

impl<'a> EarlierSpans<'a> {
    /// For a single span.
    pub(crate) fn none() -> Self {
        EarlierSpans {
            previous: Vec::new(),
            next_index: 0,
            repeated_count: 0,
            current: Vec::new(),
            run: ListRun::default(),
            current_run: CurrentRun::default(),
            last_list: None,
            keys: [(&[], None); KEY_SLOTS],
            leaves: [None; LEAF_SLOTS],
            known_attributes: None,
        }
    }

    /// For the spans of a trace.
    pub(crate) fn for_trace() -> Self {
        EarlierSpans { known_attributes: Some(Vec::new()), ..EarlierSpans::none() }
    }

    pub(super) fn begin_span(&mut self) {
        (self.next_index, self.repeated_count, self.last_list) = (0, 0, None);
        self.current_run = CurrentRun::default();
    }

    /// Makes the current span the previous one. `flat` contains its leaves in the order of its attributes.
    pub(super) fn end_span(&mut self, flat: &[FlatAttribute<'a>]) {
        if self.repeated_count > 0 || !self.current.is_empty() {
            self.previous.truncate(self.repeated_count);
            self.previous.append(&mut self.current);
            let CurrentRun { after_first, bytes_after_run, len, repeated_count, .. } = self.current_run;
            self.run.encoded = after_first.get(..after_first.len() - bytes_after_run).unwrap_or_default();
            self.run.leaves.truncate(repeated_count);
            if len > self.run.leaves.capacity() {
                self.run.leaves.reserve(len + USUAL_LEAVES);
            }
            self.run.leaves.extend_from_slice(flat.get(repeated_count..len).unwrap_or_default());
        }
    }

    /// The leaves of the earlier run after its first attribute, and the fields after the run, if `rest`, which follows
    /// the first attribute of the current span, begins with them. The attributes become attributes of the current span.
    /// `None` if the run has more than `max_leaves` leaves.
    pub(super) fn repeated_run(
        &mut self,
        rest: &'a [u8],
        max_leaves: usize,
    ) -> Option<(&[FlatAttribute<'a>], &'a [u8])> {
        let len = self.run.leaves.len();
        if (self.next_index, self.repeated_count, self.current_run.len) != (1, 1, 1)
            || !(2..=max_leaves).contains(&len)
        {
            return None;
        }
        let after = rest.strip_prefix(self.run.encoded)?;
        (self.next_index, self.repeated_count) = (len, len);
        self.current_run =
            CurrentRun { bytes_after_run: after.len(), len, repeated_count: len, ..self.current_run };
        Some((self.run.leaves.get(1..)?, after))
    }

    /// Extends the current run by the last attribute, if the attribute continues the run. `from_attribute` contains the
    /// fields of the span from the attribute on, `rest` those after it. `sorted_leaves` is the number
    /// of leaves so far; 0 if they are not in order.
    pub(super) fn extend_run(&mut self, from_attribute: &[u8], rest: &'a [u8], sorted_leaves: usize) {
        let run = &mut self.current_run;
        let attribute_count = self.repeated_count + self.current.len();
        let list = self.last_list.map(|(list, _)| list).filter(|list| !list.entry.is_statement);
        if attribute_count != run.len + 1 || sorted_leaves != attribute_count || list.is_none() {
            return;
        }
        if run.len == 0 {
            *run = CurrentRun {
                list,
                after_first: rest,
                bytes_after_run: rest.len(),
                len: 1,
                repeated_count: 0,
            };
        } else if run.bytes_after_run == from_attribute.len()
            && run.list.zip(list).is_some_and(|(a, b)| std::ptr::eq(a, b))
        {
            (run.bytes_after_run, run.len) = (rest.len(), attribute_count);
        }
    }

    /// The number of list attributes of the last span that has any.
    pub(super) fn list_len(&self) -> usize {
        self.previous.len()
    }

    /// The list attribute of the previous span at the same position, if its encoding is equal. It becomes an attribute
    /// of the current span.
    #[inline]
    pub(super) fn repeated_in_list(&mut self, encoded: &[u8]) -> Option<&ListAttribute<'a>> {
        let attribute =
            self.previous.get(self.next_index).filter(|attribute| attribute.encoded == encoded)?;
        self.last_list = Some((attribute.list, attribute.head));
        self.next_index += 1;
        match self.current.is_empty() {
            true => self.repeated_count = self.next_index,
            false => self.current.push(*attribute),
        }
        Some(attribute)
    }

    /// Adds an attribute of a list to the current span.
    pub(super) fn add_to_list(&mut self, attribute: ListAttribute<'a>) {
        self.last_list = Some((attribute.list, attribute.head));
        self.next_index += usize::from(
            self.previous.get(self.next_index).is_some_and(|previous| previous.key == attribute.key),
        );
        self.current.push(attribute);
    }

    /// An attribute of an earlier span with this encoding.
    #[inline]
    pub(super) fn known_attribute(&self, encoded: &[u8]) -> Option<&KnownAttribute<'a>> {
        let attribute = self.known_attributes.as_ref()?.get(slot_of(encoded, ATTRIBUTE_SLOTS))?.as_ref();
        attribute.filter(|candidate| candidate.encoded == encoded)
    }

    /// Caches an attribute that belongs to no list.
    pub(super) fn add_known_attribute(&mut self, attribute: KnownAttribute<'a>) {
        let Some(attributes) = &mut self.known_attributes else { return };
        if attributes.is_empty() {
            attributes.resize(ATTRIBUTE_SLOTS, None);
        }
        attributes[slot_of(attribute.encoded, ATTRIBUTE_SLOTS)] = Some(attribute);
    }

    /// The meaning of a key of an earlier attribute; `None` if the key is not cached, `Some(None)` if it has no
    /// meaning.
    #[inline]
    pub(super) fn meaning(&self, key: &[u8]) -> Option<Option<&'a KeyMeaning>> {
        let (known_key, meaning) = self.keys[slot_of(key, KEY_SLOTS)];
        (known_key == key && !key.is_empty()).then_some(meaning)
    }

    /// Adds a key that belongs to no list or map.
    pub(super) fn add_key(&mut self, key: &'a [u8], meaning: Option<&'a KeyMeaning>) {
        self.keys[slot_of(key, KEY_SLOTS)] = (key, meaning);
    }

    /// As [`FlattenedList::leaf`], of a list that earlier attributes belong to.
    pub(super) fn leaf(&mut self, list: &'a FlattenedList, suffix: &'a [u8]) -> Option<(u32, LeafKind)> {
        // The keys of the lists of inputs and outputs have the same suffixes.
        let slot = &mut self.leaves
            [(slot_of(suffix, LEAF_SLOTS) + std::ptr::from_ref(list).addr() / 64) % LEAF_SLOTS];
        match slot {
            Some((known_list, known_suffix, leaf))
                if std::ptr::eq(*known_list, list) && *known_suffix == suffix =>
            {
                *leaf
            }
            _ => slot.insert((list, suffix, list.leaf(suffix))).2,
        }
    }
}

impl<'a> ListAttribute<'a> {
    /// `leaf` returns what [`FlattenedList::leaf`] returns, or a cached copy of it.
    pub(super) fn new(
        encoded: &'a [u8],
        (list, head): (&'a FlattenedList, &'a [u8]),
        key: &'a [u8],
        value: Value<'a>,
        leaf: impl FnOnce(&'a FlattenedList, &'a [u8]) -> Option<(u32, LeafKind)>,
    ) -> ListAttribute<'a> {
        let index = parse_index(key.get(head.len()..).unwrap_or_default());
        let leaf = index.and_then(|(index, suffix)| {
            let (inner_index, kind) = leaf(list, suffix)?;
            Some(Leaf { index, inner_index, kind })
        });
        ListAttribute { encoded, list, key, head, leaf, value }
    }
}
