//! Durations (`30s`, parsed by `humantime`), sizes (`64MiB`), and secrets, which are never displayed. The
//! types are defined here for their JSON schema, their messages and their notation in `print-config`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! schema {
    ($type:ident, $json:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($json)
            }
        }
    };
}

/// Types that are shown and serialised as their `Display` text.
macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )*};
}

as_text!(Period, Size, Secret);

/// A text is not a duration or size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

/// A duration, written as in the Collector: `200ms`, `30s`, `5m`, `1h30m`; `0` needs no unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Period(pub Duration);

/// A number of bytes, written without a unit or with one: `1048576`, `64MiB`, `10GB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

/// A secret. Debug output, logs and `print-config` show `[redacted]` instead.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }

    /// The secret itself, which must not be logged or displayed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

pub const REDACTED: &str = "[redacted]";

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

schema!(Secret, { "type": "string", "description": "a secret; give it as ${env:NAME} or ${file:PATH}" });

impl Period {
    pub const fn secs(seconds: u64) -> Period {
        Period(Duration::from_secs(seconds))
    }

    pub const fn millis(millis: u64) -> Period {
        Period(Duration::from_millis(millis))
    }
}

impl std::ops::Deref for Period {
    type Target = Duration;
    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = humantime::format_duration(self.0).to_string();
        f.write_str(&text.replace(' ', ""))
    }
}

impl std::str::FromStr for Period {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Period, UnitError> {
        if text == "0" {
            return Ok(Period(Duration::ZERO));
        }
        humantime::parse_duration(text)
            .map(Period)
            .map_err(|e| UnitError(format!("'{text}' is not a duration like 30s or 5m: {e}")))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Period, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

schema!(Period, { "type": "string", "description": "a duration: 200ms, 30s, 5m, 1h30m" });

/// A number of bytes, or `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "expected a size like 64MiB or 1048576, or auto")]
pub enum MemoryBudget {
    /// Derived from the container's memory limit, else from the machine's memory, at start.
    #[default]
    Auto,
    #[serde(untagged)]
    Bytes(Size),
}

schema!(MemoryBudget, { "type": ["integer", "string"], "description": "bytes: 1073741824, 1GiB, or auto" });

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl std::str::FromStr for Size {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Size, UnitError> {
        let invalid = || UnitError(format!("'{text}' is not a size like 64MiB or 1048576"));
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
            .unwrap_or((text, 1));
        let number: u64 = number.trim().parse().map_err(|_| invalid())?;
        number.checked_mul(unit).map(Size).ok_or_else(invalid)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS[..4].iter().rev().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match unit {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size like 64MiB")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

schema!(Size, { "type": ["integer", "string"], "description": "bytes: 1048576, 64MiB, 10GB" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_parse_and_display_alike() {
        for text in ["200ms", "30s", "5m", "1h30m"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
        for text in ["64MiB", "1GiB", "1500"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert!("64 parsecs".parse::<Size>().is_err());
        assert!("soon".parse::<Period>().is_err());
    }

    #[test]
    fn a_secret_is_displayed_as_redacted() {
        let secret = Secret::new("hunter2");
        assert_eq!(
            format!("{secret:?} {}", serde_json::to_string(&secret).unwrap()),
            "[redacted] \"[redacted]\""
        );
    }
}
