# SPDX-License-Identifier: MIT
#
# An image of the static program and the bundled model, and nothing else. It does `qsf run`; other
# commands are run with --entrypoint /usr/bin/qsf:
#
#   docker build -t qsf .
#   docker run --rm qsf --prompt "Once upon a time"
#   docker run --rm -v "$PWD:/models:ro" qsf --prompt "Once upon a time" /models/model.qsf
#
# scripts/package/dockerfile_test.py does in a chroot what the lines below say.

FROM debian:bookworm-slim AS build
COPY scripts/lib.sh /lib.sh
RUN apt-get update && bash -c 'source /lib.sh && \
      apt-get install -y --no-install-recommends "${build_packages[@]}" git python3'
COPY . /source
WORKDIR /source
RUN cmake --preset release && cmake --build --preset release && \
      cmake --install build/release --prefix /usr --component tools --strip

FROM scratch
COPY --from=build /usr/bin/qsf /usr/bin/
COPY --from=build /usr/share/qsf /usr/share/qsf
COPY --from=build /usr/share/doc/qsf /usr/share/doc/qsf
USER 65534:65534
ENTRYPOINT ["/usr/bin/qsf", "run"]
