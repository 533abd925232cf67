//! The synchronisation primitives of `writer_handle`, in one place: `tests/handover` compiles that file
//! a second time against primitives of the model checker loom.

pub(super) use std::sync::{Mutex, TryLockError, atomic, mpsc};
pub(super) use std::time::Instant;
pub(super) use std::{hint, thread};
