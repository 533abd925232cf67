//! An allocator that is mimalloc, as in the binary, unless the process selects the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use mimalloc::MiMalloc;

/// The allocator that [`select`] selects.
pub struct SelectableAllocator;

/// Whether an allocator was selected.
static IS_SELECTED: AtomicBool = AtomicBool::new(false);
/// Whether the selected allocator is the system's.
static USES_SYSTEM: AtomicBool = AtomicBool::new(false);
/// Address range of the blocks that mimalloc allocated before the selection.
static EARLY_BLOCKS: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

/// Selects the allocator, once, while the process has a single thread.
pub fn select(uses_system: bool) {
    USES_SYSTEM.store(uses_system, Relaxed);
    IS_SELECTED.store(true, Relaxed);
}

fn record_early(block: *mut u8) -> *mut u8 {
    if !IS_SELECTED.load(Relaxed) {
        EARLY_BLOCKS[0].fetch_min(block.addr(), Relaxed);
        EARLY_BLOCKS[1].fetch_max(block.addr(), Relaxed);
    }
    block
}

fn is_of_system(block: *mut u8) -> bool {
    let early =
        || EARLY_BLOCKS[0].load(Relaxed) <= block.addr() && block.addr() <= EARLY_BLOCKS[1].load(Relaxed);
    USES_SYSTEM.load(Relaxed) && !early()
}

// Each block is freed by the allocator that allocated it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for SelectableAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe {
            if USES_SYSTEM.load(Relaxed) {
                System.alloc(layout)
            } else {
                record_early(MiMalloc.alloc(layout))
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe {
            if USES_SYSTEM.load(Relaxed) {
                System.alloc_zeroed(layout)
            } else {
                record_early(MiMalloc.alloc_zeroed(layout))
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe {
            if is_of_system(block) {
                System.realloc(block, layout, size)
            } else if USES_SYSTEM.load(Relaxed) {
                let new = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                std::ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                new
            } else {
                record_early(MiMalloc.realloc(block, layout, size))
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            if is_of_system(block) { System.dealloc(block, layout) } else { MiMalloc.dealloc(block, layout) }
        }
    }
}
