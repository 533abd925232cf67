//! `verdict.propagation`: which of its children's failures make a span fail.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use verdict_config::Problem;
use verdict_otlp::trace::Kind;

use super::outcome_model::OutcomeModel;

/// How a parent's verdict follows from the failures below it (paper 001, section 3.1 and footnote 1; the
/// last two policies follow section 5 and appendix C).
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Fails when any child fails.
    #[default]
    Existential,
    /// Fails when more than this share of the children that have a verdict fail.
    Threshold {
        /// The share, from 0 to 1. The parent fails if strictly more children fail.
        alpha: f64,
    },
    /// Fails when a child fails because of a span of one of these kinds.
    TypeFiltered {
        /// Kinds of the span in which the failure originated, not of the child: the children of an agent
        /// are often chains.
        kinds: BTreeSet<Kind>,
    },
    /// Fails when all children that have a verdict fail: for redundant and fallback paths.
    Conjunctive,
    /// Fails when the weights of the failures below add up to the limit.
    SeverityWeighted(SeverityWeights),
    /// Fails by failures that affect the outcome; see `propagate::relevance`.
    OutcomeRelevant,
}

/// The weights of failures by severity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeverityWeights {
    /// Weight of a failure of high severity. Default 1.
    pub high: f64,
    /// Weight of a failure of medium severity. Default 0.5.
    pub medium: f64,
    /// Weight of a failure of low severity. Default 0.1: ten of them equal one of high severity.
    pub low: f64,
    /// The sum at which the parent fails. Default 1.
    pub limit: f64,
}

impl Default for SeverityWeights {
    fn default() -> SeverityWeights {
        SeverityWeights { high: 1.0, medium: 0.5, low: 0.1, limit: 1.0 }
    }
}

const POLICY_NAMES: [&str; 6] =
    ["existential", "threshold", "type_filtered", "conjunctive", "severity_weighted", "outcome_relevant"];

const ROOT_POLICY_NAMES: [&str; 3] = ["inherit", "expected_outcome", "judged"];

/// The parameters of `threshold`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThresholdParameters {
    alpha: f64,
}

/// The parameters of `type_filtered`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeFilteredParameters {
    kinds: BTreeSet<Kind>,
}

// Not derived: a policy without parameters is a string, a policy with parameters is a map with one entry, and
// `severity_weighted` may be either.
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Policy, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Policy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a propagation policy, one of {}", POLICY_NAMES.join(", "))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Policy, E> {
                match name {
                    "existential" => Ok(Policy::Existential),
                    "conjunctive" => Ok(Policy::Conjunctive),
                    "severity_weighted" => Ok(Policy::SeverityWeighted(SeverityWeights::default())),
                    "outcome_relevant" => Ok(Policy::OutcomeRelevant),
                    "threshold" => {
                        Err(E::custom("threshold needs a share, as in { threshold: { alpha: 0.5 } }"))
                    }
                    "type_filtered" => {
                        Err(E::custom("type_filtered needs kinds, as in { type_filtered: { kinds: [llm] } }"))
                    }
                    other => Err(E::unknown_variant(other, &POLICY_NAMES)),
                }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Policy, A::Error> {
                let Some(name) = map.next_key::<String>()? else {
                    return Err(de::Error::custom("expected a policy, found an empty map"));
                };
                let policy = match name.as_str() {
                    "threshold" => {
                        let ThresholdParameters { alpha } = map.next_value()?;
                        if !(0.0..=1.0).contains(&alpha) {
                            let message = format!("expected an alpha from 0 to 1, found {alpha}");
                            return Err(de::Error::custom(message));
                        }
                        Policy::Threshold { alpha }
                    }
                    "type_filtered" => {
                        Policy::TypeFiltered { kinds: map.next_value::<TypeFilteredParameters>()?.kinds }
                    }
                    "severity_weighted" => Policy::SeverityWeighted(map.next_value()?),
                    "existential" | "conjunctive" | "outcome_relevant" => {
                        return Err(de::Error::custom(format!("{name} has no parameters")));
                    }
                    other => return Err(de::Error::unknown_variant(other, &POLICY_NAMES)),
                };
                match map.next_key::<String>()? {
                    None => Ok(policy),
                    Some(second) => {
                        Err(de::Error::custom(format!("expected one policy, also found {second}")))
                    }
                }
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for Policy {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let weights = generator.subschema_for::<SeverityWeights>();
        let kind = generator.subschema_for::<Kind>();
        json_schema!({ "oneOf": [
            { "enum": ["existential", "conjunctive", "severity_weighted", "outcome_relevant"] },
            { "type": "object", "additionalProperties": false, "required": ["threshold"], "properties": {
                "threshold": { "type": "object", "additionalProperties": false, "required": ["alpha"],
                    "properties": { "alpha": { "type": "number", "minimum": 0, "maximum": 1 } } } } },
            { "type": "object", "additionalProperties": false, "required": ["type_filtered"], "properties": {
                "type_filtered": { "type": "object", "additionalProperties": false, "required": ["kinds"],
                    "properties": { "kinds": { "type": "array", "items": kind } } } } },
            { "type": "object", "additionalProperties": false, "required": ["severity_weighted"],
                "properties": { "severity_weighted": weights } }
        ] })
    }
}

/// `verdict.propagation`. Each entry names the parents that it applies to. The most specific one applies:
/// `by_name`, `by_service`, `by_kind`, `default`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policies {
    /// For every span without a more specific entry. Default existential, as in paper 001: one failing
    /// span fails its trace.
    pub default: Policy,
    /// By the parent's kind.
    pub by_kind: BTreeMap<Kind, Policy>,
    /// By the parent's `service.name`.
    pub by_service: BTreeMap<String, Policy>,
    /// By the parent's span name.
    pub by_name: BTreeMap<String, Policy>,
    /// Default `inherit`. How the verdict of the trace follows: by the policies above, by the expected
    /// outcome of the run, or by what judges say of its outcome.
    pub root: RootPolicy,
    /// Default 0. A metric that fails with a confidence below this does not count. Failures without a
    /// confidence, which are those of judges and limits, always count.
    pub min_confidence: f64,
}

/// How the verdict of the trace follows from its failures.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootPolicy {
    /// By the policy of the root span.
    #[default]
    Inherit,
    /// By the probability that the run failed its user; writes `verdict.trace.failure_probability`.
    ExpectedOutcome(OutcomeModel),
    /// By judges: it fails if a finding touched the outcome. Without their answer as `inherit`.
    Judged,
}

// Not derived, for the same reason as for `Policy`: without weights it is a string.
impl<'de> Deserialize<'de> for RootPolicy {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<RootPolicy, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RootPolicy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a root policy, one of {}", ROOT_POLICY_NAMES.join(", "))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<RootPolicy, E> {
                match name {
                    "inherit" => Ok(RootPolicy::Inherit),
                    "expected_outcome" => Ok(RootPolicy::ExpectedOutcome(OutcomeModel::default())),
                    "judged" => Ok(RootPolicy::Judged),
                    other => Err(E::unknown_variant(other, &ROOT_POLICY_NAMES)),
                }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<RootPolicy, A::Error> {
                let root = match map.next_key::<String>()?.as_deref() {
                    Some("expected_outcome") => RootPolicy::ExpectedOutcome(map.next_value()?),
                    Some(name @ ("inherit" | "judged")) => {
                        return Err(de::Error::custom(format!("{name} has no parameters")));
                    }
                    Some(other) => return Err(de::Error::unknown_variant(other, &ROOT_POLICY_NAMES)),
                    None => return Err(de::Error::custom("expected a root policy, found an empty map")),
                };
                match map.next_key::<String>()? {
                    None => Ok(root),
                    Some(second) => {
                        Err(de::Error::custom(format!("expected one policy, also found {second}")))
                    }
                }
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl JsonSchema for RootPolicy {
    fn schema_name() -> Cow<'static, str> {
        "RootPolicy".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let model = generator.subschema_for::<OutcomeModel>();
        json_schema!({ "oneOf": [
            { "enum": ROOT_POLICY_NAMES },
            { "type": "object", "additionalProperties": false, "required": ["expected_outcome"],
                "properties": { "expected_outcome": model } }
        ] })
    }
}

impl Policies {
    /// The policy of a parent with this span name, service and kind.
    pub(crate) fn for_span(&self, name: Option<&str>, service: Option<&str>, kind: Kind) -> &Policy {
        name.and_then(|n| self.by_name.get(n))
            .or_else(|| service.and_then(|s| self.by_service.get(s)))
            .or_else(|| self.by_kind.get(&kind))
            .unwrap_or(&self.default)
    }

    /// The invalid values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        if let RootPolicy::ExpectedOutcome(model) = &self.root {
            out.extend(
                model.problems().into_iter().map(|problem| problem.in_section("root.expected_outcome")),
            );
        }
        if !(0.0..=1.0).contains(&self.min_confidence) {
            let message = format!("expected a confidence from 0 to 1, found {}", self.min_confidence);
            out.push(Problem::new("min_confidence", message));
        }
        out
    }
}
