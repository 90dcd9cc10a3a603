# One image for every role: the head (`raysched up`), joining nodes (`ray start`), the API and clients.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY raysched raysched
COPY agents agents
RUN python -m venv /opt/raysched \
 && /opt/raysched/bin/pip install --no-cache-dir -c constraints.txt '.[postgres]'

FROM python:3.11-slim
RUN useradd --create-home raysched
COPY --from=build /opt/raysched /opt/raysched
COPY configs /etc/raysched
# RAYSCHED_HOME holds the books (journal and ledger): mount a durable volume there.
ENV PATH=/opt/raysched/bin:$PATH \
    RAYSCHED_HOME=/var/lib/raysched \
    RAY_AUTH_MODE=disabled \
    RAY_USAGE_STATS_ENABLED=0 \
    PYTHONUNBUFFERED=1
RUN mkdir -p /var/lib/raysched && chown raysched /var/lib/raysched
VOLUME /var/lib/raysched
USER raysched
EXPOSE 6379 8265 8266
ENTRYPOINT ["raysched"]
CMD ["--help"]
