//! The allocator of a process: mimalloc, the binary's, unless it selects the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use mimalloc::MiMalloc;

/// An allocator.
pub struct Chosen;

/// The selected allocator, if any.
static MADE: AtomicBool = AtomicBool::new(false);
static SYSTEM: AtomicBool = AtomicBool::new(false);
/// Address range of the blocks that mimalloc allocated before the selection.
static EARLY: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

/// Selects the allocator, once, while the process has a single thread.
pub fn choose(system: bool) {
    SYSTEM.store(system, Relaxed);
    MADE.store(true, Relaxed);
}

fn note(block: *mut u8) -> *mut u8 {
    if !MADE.load(Relaxed) {
        EARLY[0].fetch_min(block.addr(), Relaxed);
        EARLY[1].fetch_max(block.addr(), Relaxed);
    }
    block
}

fn is_systems(block: *mut u8) -> bool {
    let early = || EARLY[0].load(Relaxed) <= block.addr() && block.addr() <= EARLY[1].load(Relaxed);
    SYSTEM.load(Relaxed) && !early()
}

// A block is freed by its allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { if SYSTEM.load(Relaxed) { System.alloc(layout) } else { note(MiMalloc.alloc(layout)) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe {
            if SYSTEM.load(Relaxed) {
                System.alloc_zeroed(layout)
            } else {
                note(MiMalloc.alloc_zeroed(layout))
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe {
            if is_systems(block) {
                System.realloc(block, layout, size)
            } else if SYSTEM.load(Relaxed) {
                let new = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                std::ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                new
            } else {
                note(MiMalloc.realloc(block, layout, size))
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            if is_systems(block) { System.dealloc(block, layout) } else { MiMalloc.dealloc(block, layout) }
        }
    }
}
