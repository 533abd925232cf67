//! Shares one [`Envelope`] between equal resources and scopes, within and across requests.
//!
//! In: the encoded resource and scope of spans. Out: a shared envelope, copied only if it is not in
//! the table. An SDK sends the same resource with every request, so a buffered span stores one pointer
//! to its envelope.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::trace::{Envelope, EnvelopeFields};

/// Number of sets; the hash of an envelope selects one. The 1,024 envelopes of all sets suffice for
/// several hundred services with a few scopes each.
const SETS: usize = 256;
/// Envelopes in a set; the least recently used one is replaced.
const WAYS: usize = 4;
/// Largest size of an interned envelope, which bounds the table to 8 MiB. A resource from Kubernetes
/// detectors takes 2-4 KiB.
const MAX_SIZE: usize = 8 * 1024;

/// A bounded table of envelopes. Shared by all receivers; locked for one lookup at a time.
#[derive(Debug)]
pub struct Interner {
    sets: Mutex<Vec<[Option<Arc<Envelope>>; WAYS]>>,
    hasher: RandomState,
}

impl Default for Interner {
    fn default() -> Interner {
        Interner { sets: Mutex::new(vec![[const { None }; WAYS]; SETS]), hasher: RandomState::default() }
    }
}

impl Interner {
    /// The envelope of `scope` under `resource`. `resource_copy` is the copy of the resource that all its scopes
    /// share, once it has been made: its bytes are hashed once.
    pub(super) fn envelope(
        &self,
        resource: &[u8],
        resource_copy: &mut Option<EnvelopeFields>,
        scope: &[u8],
    ) -> Arc<Envelope> {
        let make = |resource_copy: &mut Option<EnvelopeFields>| {
            let resource =
                resource_copy.get_or_insert_with(|| Bytes::copy_from_slice(resource).into()).clone();
            Arc::new(Envelope { resource, scope: Bytes::copy_from_slice(scope).into() })
        };
        if resource.len() + scope.len() > MAX_SIZE {
            return make(resource_copy);
        }
        let hash = self.hasher.hash_one((resource, scope));
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = sets.get_mut(hash as usize % SETS) else { return make(resource_copy) };
        let position = set.iter().position(|way| {
            way.as_ref()
                .is_some_and(|envelope| **envelope.resource == *resource && **envelope.scope == *scope)
        });
        // Most recently used first; the last one is dropped.
        let way = position.unwrap_or(WAYS - 1);
        if let Some(ways) = set.get_mut(..=way) {
            ways.rotate_right(1);
        }
        match (&mut set[0], position) {
            (Some(envelope), Some(_)) => Arc::clone(envelope),
            (first, _) => Arc::clone(first.insert(make(resource_copy))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(interner: &Interner, resource: &[u8], scope: &[u8]) -> Arc<Envelope> {
        interner.envelope(resource, &mut None, scope)
    }

    #[test]
    fn equal_envelopes_are_shared_and_different_ones_are_not() {
        let interner = Interner::default();
        let first = envelope(&interner, b"service", b"tracer");
        assert!(Arc::ptr_eq(&first, &envelope(&interner, b"service", b"tracer")));
        assert!(!Arc::ptr_eq(&first, &envelope(&interner, b"service", b"tracer2")));
        // The boundary between resource and scope is part of the key.
        let moved = envelope(&interner, b"servicet", b"racer");
        assert_eq!((&moved.resource[..], &moved.scope[..]), (&b"servicet"[..], &b"racer"[..]));
    }

    #[test]
    fn table_is_bounded_and_retains_recently_used_envelopes() {
        let interner = Interner::default();
        let retained = envelope(&interner, b"kept", b"");
        for i in 0..20_000u32 {
            envelope(&interner, &i.to_le_bytes(), b"");
            assert!(Arc::ptr_eq(&retained, &envelope(&interner, b"kept", b"")), "lost at {i}");
        }
        let sets = interner.sets.lock().unwrap();
        assert_eq!(sets.iter().flatten().flatten().count(), SETS * WAYS);
    }

    #[test]
    fn a_large_resource_is_copied_once_for_all_scopes_and_not_interned() {
        let interner = Interner::default();
        let resource = vec![1u8; MAX_SIZE + 1];
        let mut resource_copy = None;
        let a = interner.envelope(&resource, &mut resource_copy, b"a");
        let b = interner.envelope(&resource, &mut resource_copy, b"b");
        assert_eq!(a.resource.as_ptr(), b.resource.as_ptr());
        assert!(interner.sets.lock().unwrap().iter().flatten().flatten().next().is_none());
    }
}
