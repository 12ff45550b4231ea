# permcode and everything it needs, without root. From the repository's root:
#     docker build --target cuda --tag permcode:cuda .
#     docker build --target cpu --tag permcode:cpu .
FROM python:3.11.14-slim-bookworm AS base
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# g++: DeepSpeed and our kernels are compiled where they run. git: corpora in repositories. wget: KubeRay's probes.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends 'g++=4:12.2.*' 'git=1:2.39.*' 'wget=1.21.*' \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home permcode
ENV PATH=/opt/permcode/bin:$PATH PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/permcode

FROM base AS torch-cpu
RUN pip install --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' constraints.txt)"

FROM base AS torch-cuda
# The wheel that is not for CPUs alone brings CUDA; the node needs only the driver.
RUN pip install "$(grep '^torch==' constraints.txt)"

FROM torch-cpu AS cpu
COPY . .
RUN pip install --constraint constraints.txt '.[s3]'
USER 1000
WORKDIR /home/permcode
CMD ["permcode", "--help"]

FROM torch-cuda AS cuda
COPY . .
RUN pip install --constraint constraints.txt '.[s3]'
USER 1000
WORKDIR /home/permcode
CMD ["permcode", "--help"]
