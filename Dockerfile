# The tag is exact; for a byte-exact base give a digest: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.11.15-slim-bookworm

FROM ${PYTHON_IMAGE} AS build

# PyTorch's own builds, by uv's names for them: `cpu`, or for an embedder on a GPU the one of its CUDA, say cu130.
# Empty: what pip finds, which on Linux is CUDA's (several GB), unless an index below offers another.
ARG TORCH=cpu
# pip reads these two by itself; empty means unset.
ARG PIP_INDEX_URL=""
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /build
COPY constraints.txt ./
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install -c constraints.txt setuptools \
    && if [ -n "$TORCH" ]; then \
        /opt/venv/bin/pip install -c constraints.txt --target /opt/uv uv \
        && /opt/uv/bin/uv pip install --python /opt/venv --no-cache --torch-backend "$TORCH" -c constraints.txt torch; \
    fi
# The dependencies come first, for a stub of the package: this layer, the large one, is kept until one of
# these files changes.
COPY pyproject.toml ./
COPY service/__init__.py service/
RUN touch README.md LICENSE \
    && /opt/venv/bin/pip install --no-build-isolation -c constraints.txt ".[demo,otel]"
COPY README.md LICENSE ./
COPY service service
COPY demo demo
RUN /opt/venv/bin/pip install --no-build-isolation --no-deps --force-reinstall .


FROM ${PYTHON_IMAGE}

LABEL org.opencontainers.image.title="Eigencal" \
      org.opencontainers.image.description="Calibrated spectral uncertainty of language models over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0"

# A volume that is new takes over the owner of the folder that it covers.
RUN groupadd --gid 10001 eigencal \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin eigencal \
    && install -d -o eigencal -g eigencal /data /data/weights
COPY --from=build /opt/venv /opt/venv

# Everything that libraries write goes to the volume or to /tmp, so the root may be read-only.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    MALLOC_ARENA_MAX=2 \
    MALLOC_TRIM_THRESHOLD_=131072 \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    MPLCONFIGDIR=/tmp/matplotlib \
    HF_HOME=/data/weights/huggingface \
    HF_HUB_DISABLE_TELEMETRY=1 \
    EIGENCAL_HOST=0.0.0.0 \
    EIGENCAL_PORT=8000 \
    EIGENCAL_DATA_DIR=/data

WORKDIR /app
USER 10001:10001
EXPOSE 8000

# /healthz, not /readyz: /readyz fails with the LLM server, and a restart of this container would not mend the
# server and would interrupt jobs. The port opens once the embedder is loaded. The check uses no proxy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['EIGENCAL_PORT'] + '/healthz', timeout=4)"]

ENTRYPOINT ["python", "-m", "service"]
