//! The dates of the evidence.
//!
//! In: the texts of the evidence, to which texts are added over time. Out: their dates, each text read once.

use crate::measure::reasoning::dates;
use crate::measure::work_budget::BYTES_PER_STEP;

/// Maximum bytes of texts whose dates are read.
const MAX_DATED: usize = 1 << 20;

/// The dates of the first texts of the evidence.
#[derive(Default)]
pub(super) struct EvidenceDates {
    pub full_dates: Vec<dates::Date>,
    /// Months and days.
    pub without_year: Vec<(usize, usize)>,
    /// The number of texts that were read.
    read_texts: usize,
    /// The bytes of the texts that were read, at most [`MAX_DATED`].
    read_bytes: usize,
}

impl EvidenceDates {
    /// Reads the dates of the texts that were not read before. Returns the work steps of reading them and of one search
    /// of all dates.
    pub(super) fn read(&mut self, texts: &[&str]) -> usize {
        let bytes_before = self.read_bytes;
        for text in texts.iter().skip(self.read_texts) {
            if self.read_bytes + text.len() >= MAX_DATED {
                break;
            }
            self.read_bytes += text.len();
            self.read_texts += 1;
            self.full_dates.extend(dates::all(text));
            self.without_year.extend(dates::without_year(text));
        }
        let new_bytes = self.read_bytes - bytes_before;
        new_bytes / BYTES_PER_STEP + self.full_dates.len() + self.without_year.len()
    }
}
