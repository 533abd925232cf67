//! Verdicts compared with annotations and labels.
//!
//! In: predictions and labels, as data. Out: counts, shares, agreement and correlation, each by a
//! published definition that its file names. This module performs no I/O and reads no clock.
//!
//! | file | what it computes |
//! |---|---|
//! | [`counts`] | precision, recall, specificity, F1, F2, accuracy |
//! | [`completion`] | whether tasks were completed, by raters and by labels |
//! | [`correlation`] | Pearson, Spearman |
//! | [`alpha`] | Krippendorff's alpha |
//! | [`agreement`] | a judge's scores compared with annotators' scores, Cohen's kappa |
//! | [`similarity`] | lexical similarity of texts |
//! | [`consistency`] | agreement of a judge with itself |
//! | [`likeness`] | similarity of rationales by an embedding endpoint |
//! | [`coverage`] | measured and unmeasured, by metric |
//! | [`split`] | the development and the test half of a set of traces |
//! | [`bootstrap`] | intervals by resampling traces |
//! | [`labels`] | labels of traces |
//! | [`metrics`] | each metric compared with the labels |
//! | [`thresholds`] | the best threshold of a metric's scores |
//! | [`rules`] | the precision of each rule on labelled sets |
//! | [`path_runs`] | distributions of path scores over runs |
//! | [`fit`] | weights of the expected outcome of a run |
//! | [`report`] | the HTML report |
//! | [`trail`] | the TRAIL benchmark: its files, its taxonomy, its figures |

pub mod agreement;
pub mod alpha;
pub mod bootstrap;
pub mod completion;
pub mod consistency;
pub mod correlation;
pub mod counts;
pub mod coverage;
pub mod fit;
pub mod labels;
pub mod likeness;
pub mod metrics;
pub mod path_runs;
pub mod report;
pub mod rules;
pub mod similarity;
pub mod split;
pub mod thresholds;
pub mod trail;
