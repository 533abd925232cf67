# systemd with otel-verdict.service as its comment installs it, for tests/it/containers.rs.
FROM debian:12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends systemd systemd-sysv
COPY --from=otel-verdict /otel-verdict /usr/local/bin/otel-verdict
COPY deploy/otel-verdict.service /etc/systemd/system/
ENV container=oci
CMD ["/sbin/init"]
