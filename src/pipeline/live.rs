//! What of the configuration may change while spans are held: how traces are judged, when they
//! close, which spans are judged at all.
//!
//! In: the `verdict` section. Out: one [`Live`] that all shards share and that is exchanged as a
//! whole. Who works with one keeps it to the end of what it is doing, so that a trace is judged
//! and annotated by one configuration.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::asking::Panel;
use crate::assemble::Close;
use crate::config::{Mode, Select, Verdict};
use verdict_eval::evaluate::Engine;
use verdict_otlp::trace::CloseReason;

/// One configuration in force.
#[derive(Debug)]
pub(super) struct Live {
    pub engine: Engine,
    pub close: Close,
    pub select: Option<Select>,
    /// The judges, where any are configured.
    pub panel: Option<Arc<dyn Panel>>,
    /// How long a closed trace waits for them.
    pub max_wait: Duration,
}

impl Live {
    pub fn new(verdict: &Verdict, panel: Option<Arc<dyn Panel>>) -> Result<Live, String> {
        Ok(Live {
            engine: Engine::new(
                &verdict.evaluation,
                super::tasks::read(&verdict.evaluation.metrics.path)?,
                verdict.mode != Mode::Shadow,
            )?,
            close: verdict.close.clone(),
            panel,
            max_wait: *verdict.max_wait,
            select: (!verdict.select.is_everything()).then(|| verdict.select.clone()),
        })
    }

    /// Whether judges are asked of traces as they close.
    pub fn asks(&self) -> bool {
        self.panel.is_some() && self.engine.asks(CloseReason::Complete)
    }
}

/// The place where the one in force is found.
#[derive(Debug)]
pub(super) struct InForce(RwLock<Arc<Live>>);

impl InForce {
    pub fn new(live: Live) -> InForce {
        InForce(RwLock::new(Arc::new(live)))
    }

    pub fn get(&self) -> Arc<Live> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set(&self, live: Live) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
    }
}
