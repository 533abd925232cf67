//! The processor as a process that is killed, restarted and stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

pub(crate) struct Processor {
    config: PathBuf,
    port: u16,
    child: Child,
}

impl Processor {
    /// Starts the processor, which exports to `destination_port`. The configuration and the journal are in `directory`.
    pub(crate) fn start(directory: &Path, destination_port: u16, journal: bool) -> Processor {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = directory.join("config.yaml");
        let storage = match journal {
            true => format!("storage: {{ directory: '{}' }}", directory.join("journal").display()),
            false => String::new(),
        };
        let text = format!(
            "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:{port}' }}, http: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
             exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{destination_port}', tls: {{ insecure: true }}, \
             retry_on_failure: {{ max_interval: 5s }} }} }}\n\
             admin: {{ endpoint: '127.0.0.1:0' }}\n\
             memory: {{ budget: 256MiB }}\n\
             service: {{ log_level: error }}\n\
             verdict: {{ close: {{ quiet: 1s }} }}\n\
             {storage}\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = spawn(&config);
        Processor { config, port, child }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.config);
    }

    /// Sends SIGTERM and waits; returns whether the process exited with 0.
    pub(crate) fn terminate(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().success()
    }

    /// Anonymous resident memory in bytes, without the pages of the executable; 0 if it cannot be read.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("run").arg("--config").arg(config).spawn().expect("the processor starts")
}
