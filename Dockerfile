# ding_like on CPUs, for a user without rights.
#
#   docker build -t ding-like:0.1.0 .
#   docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" --shm-size 1g ding-like:0.1.0 -m serial -e cartpole -p dqn
#   docker build -t ding-like:0.1.0-ray --target kuberay --build-arg EXTRAS=classic,viz,kuberay .
#
# There is no HEALTHCHECK: a run is a command that ends, with a status. What serves answers at /v1/healthz (a coordinator) and
# at /health (`ding serve`).
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
# No versions: Debian keeps one of each, the newest with its fixes.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS environment
ARG EXTRAS=classic,viz
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /constraints.txt
# torch by itself: it changes seldom, and its own index has the build without CUDA, a tenth of the size.
RUN python -m venv /opt/ding && /opt/ding/bin/pip install --no-cache-dir -c /constraints.txt --index-url "${TORCH_INDEX}" torch
COPY --from=wheel /wheels /wheels
RUN /opt/ding/bin/pip install --no-cache-dir -c /constraints.txt "$(echo /wheels/*.whl)[${EXTRAS}]"

FROM python:${PYTHON}-slim AS runtime
ENV PATH=/opt/ding/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --no-create-home ding && install -d -o ding -g ding /data
COPY --from=environment /opt/ding /opt/ding
WORKDIR /data
ENTRYPOINT ["ding"]
CMD ["--help"]

FROM runtime AS kuberay
# KubeRay asks its nodes with wget whether they are alive, and sets their command itself.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
USER 10001:10001

FROM runtime AS ding
USER 10001:10001
