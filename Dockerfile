# Two images: berth for the services of a cell, and berth-lab, which has the simulated cluster, the NATS server and the
# commands for trials as well. The command selects a service: python -m berth.services.<name> --config <file>.
# The file system may be read-only: output goes only to stdout and stderr. The port of the probes is a setting of each
# service; so compose.yaml and the manifests contain the health checks, and not this file.
FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/berth
WORKDIR /src
COPY requirements-image.lock requirements-lab.lock pyproject.toml README.md LICENSE ./
COPY berth berth
COPY services services
COPY schemas schemas

FROM build AS build-lab
RUN pip --python /opt/berth/bin/python install --quiet --require-hashes --no-deps -r requirements-lab.lock \
  && pip --python /opt/berth/bin/python install --quiet --no-deps --no-build-isolation . \
  && /opt/berth/bin/python -m compileall -q /opt/berth/lib

FROM build AS build-cell
RUN rm -r berth/lab \
  && pip --python /opt/berth/bin/python install --quiet --require-hashes --no-deps -r requirements-image.lock \
  && pip --python /opt/berth/bin/python install --quiet --no-deps --no-build-isolation . \
  && /opt/berth/bin/python -m compileall -q /opt/berth/lib

FROM python:3.11-slim AS base
RUN useradd --uid 10001 --no-create-home berth
ENV PATH=/opt/berth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
ARG VERSION="" REVISION=""
LABEL org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.revision="$REVISION"
CMD ["berth", "--help"]

FROM base AS berth-lab
COPY --from=build-lab /opt/berth /opt/berth
LABEL org.opencontainers.image.title="Berth lab" \
  org.opencontainers.image.description="Simulated cluster and commands for trials of Berth"

FROM base AS berth
COPY --from=build-cell /opt/berth /opt/berth
LABEL org.opencontainers.image.title="Berth" \
  org.opencontainers.image.description="Topology-affine placement of NPU jobs on Kubernetes"
