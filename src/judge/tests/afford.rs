//! Budgets, caches, recordings, services that are kept from judges.

use super::*;
