//! The hand-over of the writer under the model checker loom: this module compiles `writer_handle.rs` a
//! second time, against loom's primitives, and explores its interleavings and the values that its atomics
//! may return under the memory model.
//!
//! A long park has no timeout here. Every wakeup that the journal would only notice by its timeout is
//! therefore a deadlock, which loom reports; so is a caller without an answer and a thread that does not
//! end. Explored are all executions with at most one to three preemptions, as many as take seconds.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::mpsc::{Receiver, Sender, channel};
use writer_handle::{HandoverState, WriterHandle, WriterStep};

use crate::record::RetainReason;

#[path = "../writer_handle.rs"]
#[allow(clippy::duplicate_mod, dead_code)]
mod writer_handle;

/// The primitives of `writer_handle`, from loom or with the guarantees that the standard library documents.
mod sync {
    pub(super) use loom::hint;
    pub(super) use loom::sync::{Mutex, atomic};
    pub(super) use std::sync::TryLockError;

    /// Time does not pass in the model: the journal thread takes over when a test sets the disk to slow.
    pub(super) struct Instant;

    impl Instant {
        pub(crate) fn now() -> Instant {
            Instant
        }

        pub(crate) fn elapsed(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }

    /// A channel that orders no more than `std::sync::mpsc` documents: a received message happens after
    /// its send. An empty receive orders nothing with sends, and a send nothing with receives.
    pub(super) mod mpsc {
        use std::sync::atomic::AtomicUsize as Unchecked;
        use std::sync::{Arc, Mutex, PoisonError};

        use loom::sync::atomic::{AtomicUsize, Ordering};

        const FREE: usize = 0;
        const SENT: usize = 1;
        const CLOSED: usize = 2;

        struct Message<T> {
            state: AtomicUsize,
            content: Mutex<Option<T>>,
        }

        impl<T> Message<T> {
            fn take(&self) -> Option<T> {
                self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
            }
        }

        type Queue<T> = Arc<(Unchecked, [Message<T>; 4])>;

        pub(in super::super) struct Sender<T>(Queue<T>);
        pub(in super::super) struct Receiver<T>(Queue<T>);

        pub(in super::super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
            let message = |_| Message { state: AtomicUsize::new(FREE), content: Mutex::new(None) };
            let queue = Arc::new((Unchecked::new(0), std::array::from_fn(message)));
            (Sender(Arc::clone(&queue)), Receiver(queue))
        }

        impl<T> Sender<T> {
            pub(crate) fn send(&self, content: T) -> Result<(), Option<T>> {
                let (sent, messages) = &*self.0;
                let message = &messages[sent.fetch_add(1, Ordering::Relaxed)];
                *message.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(content);
                match message.state.swap(SENT, Ordering::Release) {
                    CLOSED => Err(message.take()),
                    _ => Ok(()),
                }
            }
        }

        impl<T> Receiver<T> {
            pub(crate) fn try_recv(&self) -> Result<T, ()> {
                let (sent, messages) = &*self.0;
                let sent = messages.iter().take(sent.load(Ordering::Relaxed));
                let full = |message: &&Message<T>| {
                    message.content.lock().unwrap_or_else(PoisonError::into_inner).is_some()
                };
                let mut sent = sent.filter(full).filter(|m| m.state.load(Ordering::Acquire) == SENT);
                sent.next().and_then(Message::take).ok_or(())
            }
        }

        impl<T> Drop for Receiver<T> {
            fn drop(&mut self) {
                for message in &self.0.1 {
                    if message.state.swap(CLOSED, Ordering::AcqRel) == SENT {
                        drop(message.take());
                    }
                }
            }
        }
    }

    /// One thread parks, the journal thread.
    pub(super) mod thread {
        use std::cell::RefCell;
        use std::sync::Arc;

        use loom::sync::Notify;

        thread_local!(static PARKER: RefCell<Arc<Notify>> = panic!("set when the thread is started"));

        #[derive(Clone)]
        pub(in super::super) struct Thread(Arc<Notify>);
        pub(in super::super) struct JoinHandle<T>(Thread, std::marker::PhantomData<T>);
        pub(in super::super) struct Builder;

        impl Builder {
            pub(crate) fn new() -> Builder {
                Builder
            }

            pub(crate) fn name(self, _name: String) -> Builder {
                self
            }

            pub(crate) fn spawn(self, work: impl FnOnce() + 'static) -> std::io::Result<JoinHandle<()>> {
                let parker = Arc::new(Notify::new());
                PARKER.set(Arc::clone(&parker));
                loom::thread::spawn(work);
                Ok(JoinHandle(Thread(parker), std::marker::PhantomData))
            }
        }

        impl<T> JoinHandle<T> {
            pub(crate) fn thread(&self) -> &Thread {
                &self.0
            }
        }

        impl Thread {
            pub(crate) fn unpark(&self) {
                self.0.notify();
            }
        }

        /// The short park ends by its timeout, the long one only by `unpark`, or spuriously.
        pub(in super::super) fn park_timeout(timeout: std::time::Duration) {
            match timeout <= super::super::writer_handle::RELEASE_DELAY {
                true => loom::thread::yield_now(),
                false => PARKER.with_borrow(Arc::clone).wait(),
            }
        }
    }
}

/// Reports whether the command was executed; a dropped reply reports that it was not.
struct CommandReply(Option<Sender<bool>>);

impl CommandReply {
    fn new() -> (CommandReply, Receiver<bool>) {
        let (sender, receiver) = channel();
        (CommandReply(Some(sender)), receiver)
    }

    fn executed(mut self) {
        let _ = self.0.take().map(|sender| sender.send(true));
    }
}

impl Drop for CommandReply {
    fn drop(&mut self) {
        let _ = self.0.take().map(|sender| sender.send(false));
    }
}

enum Command {
    Submitted(CommandReply),
    Enqueued(CommandReply),
    Panic(CommandReply),
    Close(CommandReply),
}

/// A stand-in of the writer that answers every command.
struct AnsweringWriter {
    commands: sync::mpsc::Receiver<Command>,
    state: std::sync::Arc<HandoverState>,
    released: Sender<()>,
    discarded: Vec<CommandReply>,
    written: u64,
    close: Option<CommandReply>,
}

impl WriterStep for AnsweringWriter {
    fn step(&mut self) {
        let mut discarded = Vec::new();
        while let Ok(command) = self.commands.try_recv() {
            if !matches!(command, Command::Enqueued(_)) {
                self.state.received();
                self.written += 1;
            }
            match command {
                Command::Submitted(reply) => reply.executed(),
                Command::Enqueued(reply) => discarded.push(reply),
                // As `panic!`, but without a message for each execution.
                Command::Panic(_reply) => std::panic::resume_unwind(Box::new(())),
                Command::Close(reply) => self.close = Some(reply),
            }
        }
        for releases in self.state.take_released() {
            self.written += 1;
            match releases.is_empty() {
                true => self.discarded.drain(..).for_each(CommandReply::executed),
                false => drop(self.released.send(())),
            }
        }
        // Releases discarded records after the write, as the writer does.
        if !discarded.is_empty() {
            self.state.release([Vec::new()]);
            self.discarded = discarded;
        }
    }

    fn maintain(&mut self) -> bool {
        self.step();
        self.close.is_some()
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn park_timeout(&self) -> Duration {
        Duration::MAX
    }

    fn finish(&mut self) {
        self.step();
        let _ = self.close.take().map(CommandReply::executed);
    }
}

type Handle = Arc<WriterHandle<Command>>;

fn check(preemptions: usize, scenario: fn(Handle, std::sync::Arc<HandoverState>, Receiver<()>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let state = std::sync::Arc::new(HandoverState::default());
        let (released, releases) = channel();
        let shared = std::sync::Arc::clone(&state);
        let (discarded, written, close) = Default::default();
        let writer =
            |commands| AnsweringWriter { commands, state: shared, released, discarded, written, close };
        let (handle, _thread) = WriterHandle::open(writer, &state).unwrap();
        scenario(Arc::new(handle), state, releases);
    });
}

fn submit(handle: &Handle, command: fn(CommandReply) -> Command) -> bool {
    let (reply, executed) = CommandReply::new();
    let sent = handle.submit(command(reply));
    executed.recv().unwrap() && sent
}

fn on_a_thread(handle: &Handle, work: impl FnOnce(&Handle) + 'static) {
    let handle = Arc::clone(handle);
    loom::thread::spawn(move || work(&handle));
}

#[test]
fn every_submitted_command_is_executed() {
    check(2, |handle, _, _| {
        on_a_thread(&handle, |handle| assert!(submit(handle, Command::Submitted)));
        assert!(submit(&handle, Command::Submitted));
    });
}

#[test]
fn with_a_slow_disk_the_journal_thread_executes_every_command() {
    check(2, |handle, state, _| {
        state.wrote_in(Duration::MAX);
        on_a_thread(&handle, |handle| assert!(submit(handle, Command::Submitted)));
        assert!(submit(&handle, Command::Submitted));
    });
}

#[test]
fn an_enqueued_command_is_executed_without_a_timeout() {
    check(3, |handle, _, _| {
        let (reply, executed) = CommandReply::new();
        handle.enqueue(Command::Enqueued(reply));
        assert!(executed.recv().unwrap());
    });
}

#[test]
fn an_enqueued_and_a_submitted_command_are_both_executed() {
    check(2, |handle, _, _| {
        on_a_thread(&handle, |handle| assert!(submit(handle, Command::Submitted)));
        let (reply, executed) = CommandReply::new();
        handle.enqueue(Command::Enqueued(reply));
        assert!(executed.recv().unwrap());
    });
}

#[test]
fn a_release_is_written_without_a_timeout() {
    check(3, |handle, state, releases| {
        state.release([vec![(1, RetainReason::Forwarded)]]);
        handle.wake();
        releases.recv().unwrap();
    });
}

#[test]
fn close_executes_what_was_sent_before_and_ends_the_thread() {
    check(2, |handle, _, _| {
        let (enqueued, executed) = CommandReply::new();
        handle.enqueue(Command::Enqueued(enqueued));
        let (reply, closed) = CommandReply::new();
        assert!(handle.close(Command::Close(reply)));
        assert!(closed.recv().unwrap() && executed.recv().unwrap());
        // The thread ends although the handle is still there.
        assert!(!submit(&handle, Command::Submitted));
    });
}

#[test]
fn a_caller_that_submits_during_close_gets_an_answer() {
    check(1, |handle, _, _| {
        on_a_thread(&handle, |handle| {
            submit(handle, Command::Submitted);
        });
        let (reply, closed) = CommandReply::new();
        assert!(handle.close(Command::Close(reply)));
        assert!(closed.recv().unwrap());
    });
}

#[test]
fn a_panic_ends_the_writer_and_leaves_no_caller_waiting() {
    check(2, |handle, _, _| {
        on_a_thread(&handle, |handle| {
            submit(handle, Command::Submitted);
        });
        assert!(!submit(&handle, Command::Panic));
        let (reply, closed) = CommandReply::new();
        handle.close(Command::Close(reply));
        assert!(!closed.recv().unwrap());
    });
}
