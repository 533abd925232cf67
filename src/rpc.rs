//! Messages of google.rpc in responses, for the receiver and the exporters: why a request failed, and
//! when to retry it. `proto/rpc.proto` describes them and the reason why they are declared here.

use std::time;

use bytes::Bytes;
use prost::Message;

/// The `type_url` of details that contain a [`RetryInfo`].
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`: the body of an error response.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) message: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

impl RpcStatus {
    /// A status whose details contain the retry delay, if there is one.
    pub(crate) fn new(code: i32, message: String, retry: Option<time::Duration>) -> RpcStatus {
        let details = retry.map(|retry| {
            let delay = ProtoDuration {
                seconds: i64::try_from(retry.as_secs()).unwrap_or(i64::MAX),
                nanos: i32::try_from(retry.subsec_nanos()).unwrap_or(0),
            };
            let info = RetryInfo { retry_delay: Some(delay) };
            Any { type_url: Bytes::from_static(RETRY_INFO.as_bytes()), value: info.encode_to_vec().into() }
        });
        RpcStatus { code, message: message.into(), details: details.into_iter().collect() }
    }

    /// The delay of a `RetryInfo` among the details; negative parts count as 0.
    pub(crate) fn retry_delay(&self) -> Option<time::Duration> {
        let info = self.details.iter().find(|any| any.type_url.ends_with(b"/google.rpc.RetryInfo"))?;
        let ProtoDuration { seconds, nanos } =
            RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
        let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
        Some(time::Duration::new(u64::try_from(seconds).unwrap_or(0), nanos))
    }
}

/// `google.protobuf.Any`: a message of a named type.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) type_url: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `google.rpc.RetryInfo`, the retry delay in the details of a status.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<ProtoDuration>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[cfg(test)]
mod tests {
    use protox::prost_reflect::{DescriptorPool, DynamicMessage, Value};

    use super::*;

    #[test]
    fn messages_match_the_proto_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let pool =
            DescriptorPool::from_file_descriptor_set(protox::compile(["rpc.proto"], [folder]).unwrap());
        let pool = pool.unwrap();
        // The fields that are set, in the order of their numbers.
        let fields = |message: &str, encoded: Vec<u8>| {
            let descriptor = pool.get_message_by_name(message).unwrap();
            let decoded = DynamicMessage::decode(descriptor, &*encoded).unwrap();
            assert_eq!(decoded.unknown_fields().count(), 0, "{message}");
            decoded
                .fields()
                .map(|(field, value)| (field.name().to_owned(), value.clone()))
                .collect::<Vec<_>>()
        };
        let message =
            |name: &str| Value::Message(DynamicMessage::new(pool.get_message_by_name(name).unwrap()));
        let bytes = |text: &'static str| Value::Bytes(Bytes::from_static(text.as_bytes()));

        let any = Any { type_url: "type".into(), value: "value".into() };
        assert_eq!(
            fields("rpc.Any", any.encode_to_vec()),
            [("type_url".into(), bytes("type")), ("value".into(), bytes("value"))]
        );
        let status = RpcStatus { code: 14, message: "text".into(), details: vec![Any::default()] };
        assert_eq!(
            fields("rpc.Status", status.encode_to_vec()),
            [
                ("code".into(), Value::I32(14)),
                ("message".into(), bytes("text")),
                ("details".into(), Value::List(vec![message("rpc.Any")]))
            ]
        );
        let info = RetryInfo { retry_delay: Some(ProtoDuration::default()) };
        assert_eq!(
            fields("rpc.RetryInfo", info.encode_to_vec()),
            [("retry_delay".into(), message("rpc.Duration"))]
        );
        let delay = ProtoDuration { seconds: 1, nanos: 2 };
        assert_eq!(
            fields("rpc.Duration", delay.encode_to_vec()),
            [("seconds".into(), Value::I64(1)), ("nanos".into(), Value::I32(2))]
        );
    }

    #[test]
    fn retry_delay_is_read_among_details_that_are_not_utf8() {
        let delay = time::Duration::from_millis(2500);
        let mut status = RpcStatus::new(14, "full".to_owned(), Some(delay));
        status.message = Bytes::from_static(b"\xff");
        status.details.insert(0, Any { type_url: Bytes::from_static(b"\xff"), value: Bytes::new() });
        assert_eq!(RpcStatus::decode(&*status.encode_to_vec()).unwrap().retry_delay(), Some(delay));
        assert_eq!(RpcStatus::new(14, String::new(), None).retry_delay(), None);
    }
}
