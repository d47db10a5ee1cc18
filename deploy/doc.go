// Package deploy holds the files that a deployment begins with: alert rules, a
// dashboard, a compose file, a systemd unit, a Dockerfile and manifests for Kubernetes. Its own tests
// compare alerts and dashboard with the metrics that a Guard exports.
package deploy
