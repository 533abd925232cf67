//! OTLP's messages as structs, generated from `proto/`. For what we write ourselves (responses, log
//! records) and for tools; the data path reads spans without decoding them.

/// Requests, responses and what they hold (`proto/otlp.proto`).
#[allow(missing_docs, clippy::all)]
pub mod otlp {
    include!(concat!(env!("OUT_DIR"), "/otlp.rs"));
}

/// Why a request failed (`proto/rpc.proto`).
#[allow(missing_docs, clippy::all)]
pub mod rpc {
    include!(concat!(env!("OUT_DIR"), "/rpc.rs"));
}
