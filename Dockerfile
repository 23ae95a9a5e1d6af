# One image for all services; the command selects one: python -m berth.services.<name> --config <file>.
# The file system may be read-only: output goes only to stdout and stderr. The port of the probes is a setting of each
# service; so compose.yaml and the manifests contain the health checks, and not this file.
FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/berth
WORKDIR /src
COPY requirements-image.lock ./
RUN /opt/berth/bin/pip install --quiet --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY berth berth
COPY services services
COPY schemas schemas
RUN /opt/berth/bin/pip install --quiet --no-deps --no-build-isolation . \
  && /opt/berth/bin/python -m compileall -q /opt/berth/lib

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home berth
COPY --from=build /opt/berth /opt/berth
ENV PATH=/opt/berth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
ARG VERSION="" REVISION=""
LABEL org.opencontainers.image.title="Berth" \
  org.opencontainers.image.description="Topology-affine placement of NPU jobs on Kubernetes" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.revision="$REVISION"
CMD ["berth", "--help"]
