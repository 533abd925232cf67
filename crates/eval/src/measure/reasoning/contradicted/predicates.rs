//! States as predicates: what a flag or a state word asserts, and which statements it refutes.
//!
//! A word asserts a predicate or its opposite ("sold out" is the opposite of "available"). A state of a
//! process also asserts others: what is delivered has been shipped, what is being processed has not.

/// A predicate, and whether it holds.
pub(super) type Assertion = (&'static str, bool);

/// Words and the assertion that each makes. Fields have them as key of a flag or as value, answers as words.
pub(super) const WORDS: [(&str, bool, &[&str]); 26] = [
    ("available", true, &["available", "in stock", "stock available"]),
    ("available", false, &["unavailable", "out of stock", "sold out", "discontinued"]),
    ("open", true, &["open", "reopened", "unresolved"]),
    ("open", false, &["closed", "resolved"]),
    (
        "pending",
        true,
        &["pending", "processing", "being processed", "in progress", "queued", "on hold", "preparing"],
    ),
    (
        "shipped",
        true,
        &["shipped", "dispatched", "in transit", "out for delivery", "on its way", "on the way"],
    ),
    ("delivered", true, &["delivered"]),
    ("cancelled", true, &["cancelled", "canceled"]),
    ("active", true, &["active", "enabled", "running", "online", "switched on"]),
    (
        "active",
        false,
        &["inactive", "disabled", "suspended", "stopped", "offline", "deactivated", "switched off"],
    ),
    ("paid", true, &["paid", "settled"]),
    ("paid", false, &["unpaid", "overdue", "outstanding"]),
    ("approved", true, &["approved", "accepted", "granted"]),
    ("approved", false, &["rejected", "declined", "denied"]),
    ("passed", true, &["passed", "succeeded", "successful"]),
    ("passed", false, &["failed", "failing", "unsuccessful"]),
    ("free", true, &["free", "vacant", "unoccupied"]),
    ("free", false, &["taken", "booked", "occupied", "reserved", "fully booked", "on loan"]),
    ("confirmed", true, &["confirmed"]),
    ("confirmed", false, &["unconfirmed"]),
    ("valid", true, &["valid"]),
    ("valid", false, &["invalid", "expired"]),
    ("blocked", true, &["blocked", "locked", "frozen"]),
    ("blocked", false, &["unblocked", "unlocked"]),
    ("encrypted", true, &["encrypted"]),
    ("encrypted", false, &["unencrypted"]),
];

/// What else is known of a thing of which the first assertion holds.
const ALSO: [(Assertion, &[Assertion]); 7] = [
    (("pending", true), &[("shipped", false), ("delivered", false), ("cancelled", false)]),
    (("shipped", true), &[("pending", false), ("delivered", false), ("cancelled", false)]),
    (("delivered", true), &[("pending", false), ("shipped", true), ("cancelled", false)]),
    (("cancelled", true), &[("delivered", false), ("pending", false), ("active", false)]),
    (("confirmed", true), &[("cancelled", false)]),
    (("free", true), &[("available", true)]),
    (("free", false), &[("available", false)]),
];

/// The assertion that these words make as the value of a field or in an answer.
pub(super) fn assertion(words: &str) -> Option<Assertion> {
    let row = WORDS.iter().find(|(.., forms)| forms.contains(&words))?;
    Some((row.0, row.1))
}

/// All that a thing's state asserts.
pub(super) fn with_consequences(first: Assertion) -> impl Iterator<Item = Assertion> {
    let also = ALSO.iter().filter(move |(of, _)| *of == first).flat_map(|(_, also)| also.iter().copied());
    std::iter::once(first).chain(also)
}
