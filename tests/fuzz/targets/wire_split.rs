//! Any bytes as a trace request: no panic; what is accepted is written again byte for byte, and
//! splitting what was written gives the same spans.
#![no_main]

use libfuzzer_sys::fuzz_target;
use otel_verdict::wire::write::{Item, requests, strip_attributes};
use otel_verdict::wire::{Interner, logs, metrics, split};

fuzz_target!(|data: &[u8]| {
    let _ = logs::find(data);
    let _ = metrics::count(data);
    let _ = strip_attributes(data, "verdict.");
    let interner = Interner::default();
    let Ok(first) = split(data, "verdict.", &interner) else { return };
    for group in &first.groups {
        let items: Vec<Item<'_>> = group
            .spans
            .iter()
            .map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] })
            .collect();
        let written: Vec<u8> =
            requests(&items, 4096).iter().flat_map(|piece| piece.bytes.to_vec()).collect();
        let again = split(&written, "verdict.", &interner).expect("what we write is a request");
        assert_eq!(again.rejected.count, 0);
        let [again] = &again.groups[..] else { panic!("one trace became several") };
        let sorted = |spans: &[otel_verdict::trace::Span]| {
            let mut all: Vec<_> =
                spans.iter().map(|s| (s.envelope.resource.clone(), s.envelope.scope.clone(), s.bytes.clone())).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&again.spans), sorted(&group.spans));
    }
});
