//! Tests TLS of exporters: trusted authorities, client certificates, and names in certificates.

use verdict_client::{ClientError, TlsError};

use super::*;

#[tokio::test]
async fn tls_trusts_only_the_configured_authority() {
    let folder = tempfile::tempdir().unwrap();
    for (name, host) in [("localhost", "localhost"), ("sink.example", "127.0.0.1")] {
        let (cert, server) = self_signed(name);
        let ca = folder.path().join(format!("{name}.pem"));
        std::fs::write(&ca, cert).unwrap();
        let trust = format!("ca_file: {}, server_name_override: {name}", ca.display());
        for protocol in PROTOCOLS {
            for (tls, is_accepted) in [
                (trust.as_str(), true),
                ("insecure_skip_verify: true", true),
                ("server_name_override: localhost", false),
            ] {
                let sink = Sink::start_tls(|_, _| TestResponse::Ok(vec![]), Some(server.clone())).await;
                let host = format!("{host}:{}", sink.addr.port());
                let more_settings = format!("tls: {{ {tls} }}, retry_on_failure: {{ enabled: false }}");
                let configs = parse_configs(&yaml(protocol, "https", &host, &more_settings));
                let started = Exporters::start(&configs, &[protocol.to_owned()], &context());
                let exporters = match started {
                    Ok(exporters) => exporters,
                    // The machine has no trusted certificate authorities.
                    Err((_, StartError::Client(ClientError::Tls(TlsError::NoAuthorities))))
                        if !is_accepted =>
                    {
                        continue;
                    }
                    Err((id, error)) => panic!("{id}: {error}"),
                };
                exporters.send_record(parcel(&["a"]), None).await;
                drain(&exporters).await;
                let expected = if is_accepted { (1, 0) } else { (0, 1) };
                assert_eq!(exported_and_dropped(only(&exporters)), expected, "{protocol} {name} {tls}");
            }
        }
    }
}

#[tokio::test]
async fn client_certificate_is_sent_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, server) = self_signed("localhost");
    let (authority, client, key) = client_certificate();
    let server = server.client_ca_root(tonic::transport::Certificate::from_pem(authority));
    let trust = format!("ca_file: {}", file("ca.pem", &cert));
    let with_client_cert =
        format!("{trust}, cert_file: {}, key_file: {}", file("c.pem", &client), file("k.pem", &key));
    for protocol in PROTOCOLS {
        for (tls, expected) in [(&with_client_cert, (1, 0)), (&trust, (0, 1))] {
            let sink = Sink::start_tls(|_, _| TestResponse::Ok(vec![]), Some(server.clone())).await;
            let more_settings = format!("tls: {{ {tls} }}, retry_on_failure: {{ enabled: false }}");
            let exporters =
                start(&yaml(protocol, "https", &format!("localhost:{}", sink.addr.port()), &more_settings));
            exporters.send_record(parcel(&["a"]), None).await;
            drain(&exporters).await;
            assert_eq!(exported_and_dropped(only(&exporters)), expected, "{protocol} {tls}");
        }
    }
}

#[tokio::test]
async fn certificate_for_another_name_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, server) = self_signed("somebody.else");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, cert).unwrap();
    for protocol in PROTOCOLS {
        let sink = Sink::start_tls(|_, _| TestResponse::Ok(vec![]), Some(server.clone())).await;
        let more_settings =
            format!("tls: {{ ca_file: {} }}, retry_on_failure: {{ enabled: false }}", ca.display());
        let exporters = start(&yaml(protocol, "https", &sink.addr.to_string(), &more_settings));
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert_eq!(
            (exported_and_dropped(only(&exporters)), sink.requests().len()),
            ((0, 1), 0),
            "{protocol}"
        );
    }
}
