//! Signs requests by the specification Standard Webhooks: HMAC-SHA256 over id, time and body, so that a receiver can
//! verify the sender of a request and refuse an old one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use verdict_config::Secret;

/// Minimum bytes of a key, by Standard Webhooks.
const MIN_KEY_BYTES: usize = 24;

/// The key with which requests are signed.
#[derive(Clone)]
pub(super) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// The key in a secret: base64 after `whsec_`, otherwise the bytes of the secret.
    pub(super) fn new(secret: &Secret) -> Result<SigningKey, &'static str> {
        let text = secret.expose();
        let bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| "not base64 after whsec_")?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.len() < MIN_KEY_BYTES {
            return Err("shorter than 24 bytes");
        }
        Hmac::new_from_slice(&bytes).map(SigningKey).map_err(|_| "not a key")
    }

    /// The value of `webhook-signature`. `timestamp` is in seconds since 1970.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &str) -> String {
        let mut mac = self.0.clone();
        for part in [id, ".", &timestamp.to_string(), ".", body] {
            mac.update(part.as_bytes());
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected signature was computed with Python's `hmac`.
    #[test]
    fn signatures_equal_known_ones() {
        let key = SigningKey::new(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signed = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(SigningKey::new(&Secret::new("too short")).is_err());
        assert!(SigningKey::new(&Secret::new("whsec_***")).is_err());
    }
}
