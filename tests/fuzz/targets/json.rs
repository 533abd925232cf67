//! Any bytes as JSON and as protobuf of every signal: no panic; what one direction writes, the
//! other reads, and then changes no more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use otel_verdict::receive::Signal;
use otel_verdict::wire::json;

fuzz_target!(|data: &[u8]| {
    for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
        if let Ok(bytes) = json::decode(signal, data) {
            let text = json::encode(signal, &bytes).expect("what we write is a request");
            let again = json::decode(signal, &text).expect("what we write is JSON");
            assert_eq!(json::encode(signal, &again).as_ref(), Ok(&text));
        }
        let _ = json::encode(signal, data);
    }
});
