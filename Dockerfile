# One file, two images: `api` has no torch and stays small; `worker` runs networks.
#   docker build --target api -t potstill-api .
#   docker build --target worker -t potstill-worker .
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 POTSTILL_HOME=/var/lib/potstill
RUN useradd --system --uid 10001 --home-dir /var/lib/potstill --create-home potstill
WORKDIR /opt/potstill
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY contract contract
COPY client_sdk client_sdk
COPY service service
COPY worker worker
COPY migrations migrations
COPY potstill potstill

FROM base AS api
RUN pip install -c constraints.txt '.[service,postgres,redis,s3,otel]'
USER potstill
VOLUME /var/lib/potstill
EXPOSE 8080
HEALTHCHECK --interval=10s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8080/healthz', timeout=3)"]
CMD ["python", "-m", "uvicorn", "service.app:create_app", "--factory", "--host", "0.0.0.0", "--port", "8080", \
     "--no-access-log", "--timeout-graceful-shutdown", "10", "--timeout-keep-alive", "65", \
     "--limit-concurrency", "10000", \
     "--http", "service.infra.protocol:BoundedHttp", "--no-server-header", "--no-proxy-headers"]

FROM base AS worker
RUN pip install -c constraints.txt '.[worker,postgres,redis,s3,otel]'
USER potstill
VOLUME /var/lib/potstill
CMD ["python", "-m", "celery", "-A", "worker.app", "worker", "--pool=threads", "--concurrency=1", \
     "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=INFO"]
