# Off loopback the server requires a token. Put it into a file that user 10001 can read:
#
#   docker build -t schedo .
#   docker run --restart on-failure -p 8080:8080 -v schedo-data:/data \
#       -v ./token:/run/secrets/schedo_token:ro -e SCHEDO_TOKEN_FILE=/run/secrets/schedo_token schedo
#
# After the exit codes 2, 65 and 78 a restart cannot help (README, "Running it in production"). It does
# no harm, because Docker waits longer before each restart. "docker stop" waits 10 s, but the server's
# drain takes up to 28 s: use "docker stop --time 30", or a shorter --drain-grace.
#
# gRPC, PostgreSQL and OpenTelemetry need the extras: docker build --build-arg REQUIREMENTS=all. For gRPC then:
#
#   docker run … -p 9090:9090 -e SCHEDO_GRPC_PORT=9090 … schedo
#
# The root file system may be read-only (--read-only); the server writes only to /data. compose.yaml runs a
# server with workers; docs/operations.md has more.
#
# The base is one release of Python and of Debian. To pin its bytes as well, for builds that must not change:
#
#   docker buildx imagetools inspect python:3.13.9-slim-bookworm    # prints "Digest: sha256:..."
#   docker build --build-arg BASE=python:3.13.9-slim-bookworm@sha256:... -t schedo .

ARG BASE=python:3.13.9-slim-bookworm

FROM ${BASE} AS build

# all: with the extras, such as PostgreSQL (requirements/all.txt).
ARG REQUIREMENTS=run
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

COPY requirements/${REQUIREMENTS}.txt requirements/build.txt requirements/
RUN python -m venv --without-pip /venv \
    && pip --python /venv/bin/python install --require-hashes --only-binary :all: -r requirements/${REQUIREMENTS}.txt \
    && pip install --require-hashes --only-binary :all: -r requirements/build.txt

COPY pyproject.toml README.md LICENSE ./
COPY schedo schedo
RUN python -m hatchling build -t wheel \
    && pip --python /venv/bin/python install --no-index --no-deps dist/*.whl \
    && /venv/bin/python -m compileall -q /venv/lib


FROM ${BASE}

LABEL org.opencontainers.image.title="schedo" \
      org.opencontainers.image.description="A durable job scheduler in one process" \
      org.opencontainers.image.licenses="MIT"

# Commands may leave child processes behind; tini, as the first process, reaps them.
RUN apt-get update \
    && apt-get install -y --no-install-recommends 'tini=0.19.*' \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 /data
COPY --from=build /venv /venv

# All modules are already compiled, so Python writes nothing beside the code. The settings are variables, so that
# other arguments (docker run schedo serve --allow-shell) and commands in the container keep them.
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SCHEDO_HOST=0.0.0.0 SCHEDO_STORE=/data/schedo.db
WORKDIR /data
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["python", "-m", "schedo.health"]
ENTRYPOINT ["tini", "--", "schedo"]
CMD ["serve"]
