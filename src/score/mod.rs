//! How right the verdicts are: what was found, held against what people found.
//!
//! In: predictions and labels, as data. Out: counts, shares, agreement and correlation, each by a
//! published definition that its file names. Nothing here reads a file or a clock.
//!
//! | file | what it computes |
//! |---|---|
//! | [`counts`] | precision, recall, F1, F2, accuracy |
//! | [`correlation`] | Pearson, Spearman |
//! | [`alpha`] | Krippendorff's alpha |
//! | [`agreement`] | a judge's scores against people's, Cohen's kappa |
//! | [`similarity`] | likeness of texts by their words |
//! | [`consistency`] | a judge against itself |
//! | [`bootstrap`] | intervals by drawing traces again |
//! | [`labels`] | what people say of traces |
//! | [`metrics`] | each metric against it |
//! | [`thresholds`] | where to cut a metric's scores |
//! | [`report`] | one page of all of it |
//! | [`trail`] | the TRAIL benchmark: its files, its taxonomy, its figures |

pub mod agreement;
pub mod alpha;
pub mod bootstrap;
pub mod consistency;
pub mod correlation;
pub mod counts;
pub mod labels;
pub mod metrics;
pub mod report;
pub mod similarity;
pub mod thresholds;
pub mod trail;
