# `docker build --tag remit .` makes an image whose command is `remit`; without words it runs a worker.
# test/deploy/image.test.ts runs these lines without an engine, so RUN stays within WORKDIR except for apt-get.

FROM node:24-bookworm-slim AS build
WORKDIR /remit
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev
COPY bin bin
COPY migrations migrations
COPY src src
# Without it every start would bundle the workflows for some seconds, and the user below may not keep the result.
RUN node src/worker/bundle-main.ts
# Says to bin/prepare.mjs that nothing is to be installed. What it compiled the command below would not find.
RUN NODE_DISABLE_COMPILE_CACHE=1 node bin/remit.mjs --version

# The SNS/SQS stand-in of compose.yaml; the version is that of package.json.
FROM node:24-bookworm-slim AS broker
WORKDIR /broker
RUN npm init --yes && npm install --omit=dev fauxqs@2.4.1
# A volume that is new takes this folder's mode, so that the user below may write to it.
RUN mkdir --mode=1777 data
ENV FAUXQS_PERSISTENCE=true
ENV FAUXQS_DATA_DIR=/broker/data
USER node
EXPOSE 4566
CMD ["node", "node_modules/fauxqs/dist/server.js"]

FROM node:24-bookworm-slim AS remit
# Temporal's native client takes the system's certificates, which the slim image lacks.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /remit
COPY --from=build /remit /remit
ENV NODE_ENV=production
# A prober comes from outside of the container.
ENV REMIT_HEALTH_ADDRESS=0.0.0.0
ENV REMIT_HEALTH_PORT=8080
USER node
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/remit/src/cli/main.ts"]
CMD ["worker"]
