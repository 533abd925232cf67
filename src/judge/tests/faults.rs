//! Judges that are down, slow, lying, overloaded or broken.

use super::*;
