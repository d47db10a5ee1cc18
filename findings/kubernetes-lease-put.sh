#!/usr/bin/env bash
# Kubernetes 1.37.2, coordination.k8s.io/v1: a PUT of a Lease that was deleted makes it anew, whatever resourceVersion it
# names. Only if it names the uid as well is it a conflict. Of a ConfigMap the same PUT is a 404.
#
# Seen:
#   PUT of version 1 over version 2:             409
#   the same PUT after a DELETE:                 201
#   with the uid:                                409
#   a ConfigMap, the same PUT after a DELETE:    404
#
# Why it matters to who locks with a Lease: "conditional on resourceVersion" doesn't hold for a Lease that is gone. A
# renewal that arrives late, behind the DELETE with which its holder or an operator has released the Lease, takes it
# again, under a holder that no longer knows of it. Update what Get or Create returned, which has the uid, and don't build
# the object from a name and a version.
#
# The first run builds kube-apiserver, which takes minutes. Needs curl. Exits 1 if the behaviour has changed.
set -euo pipefail
dir=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT
cd "$dir"
mkdir kubernetes etcd
cat >kubernetes/main.go <<'EOG'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
EOG
{
	printf 'module finding\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n\nreplace (\n'
	for name in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap \
		code-generator component-base component-helpers controller-manager cri-api cri-client cri-streaming csi-translation-lib \
		dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler \
		kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin sample-controller streaming; do
		echo "	k8s.io/$name => k8s.io/$name v0.37.2"
	done
	echo ')'
} >kubernetes/go.mod
cat >etcd/main.go <<'EOG'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
EOG
printf 'module finding\n\ngo 1.26.0\n\nrequire go.etcd.io/etcd/server/v3 v3.7.3\n' >etcd/go.mod
for server in kubernetes etcd; do (cd $server && GOFLAGS=-mod=mod go build -o ../$server.bin .); done

port=$((20000 + RANDOM % 10000))
url=https://127.0.0.1:$((port + 2))
./etcd.bin --data-dir=data --log-level=error --listen-client-urls=http://127.0.0.1:$port --advertise-client-urls=http://127.0.0.1:$port \
	--listen-peer-urls=http://127.0.0.1:$((port + 1)) >etcd.log 2>&1 &
pids+=($!)
openssl genrsa -out key.pem 2048 2>/dev/null
echo 'token,admin,1,system:masters' >tokens
./kubernetes.bin --etcd-servers=http://127.0.0.1:$port --bind-address=127.0.0.1 --secure-port=$((port + 2)) --cert-dir=certificates \
	--token-auth-file=tokens --service-account-issuer=https://kubernetes --service-account-key-file=key.pem \
	--service-account-signing-key-file=key.pem --service-cluster-ip-range=10.0.0.0/24 --endpoint-reconciler-type=none >kubernetes.log 2>&1 &
pids+=($!)

ask() { # method path body; prints the answer's code, and keeps the answer
	curl -sk -o answer -w '%{http_code}' -X "$1" -H 'Authorization: Bearer token' -H 'Content-Type: application/json' "$url$2" ${3:+-d "$3"}
}
field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" answer | head -n 1; }
for _ in $(seq 600); do
	[ "$(ask GET /api/v1/namespaces/default || true)" = 200 ] && break
	sleep 0.1
done

leases=/apis/coordination.k8s.io/v1/namespaces/default/leases
maps=/api/v1/namespaces/default/configmaps
lease() { echo "{\"metadata\": {\"name\": \"sku-42\" $1}, \"spec\": {\"holderIdentity\": \"$2\"}}"; }
ask POST $leases "$(lease '' a)" >/dev/null
version=$(field resourceVersion) uid=$(field uid)
ask PUT $leases/sku-42 "$(lease ", \"resourceVersion\": \"$version\"" b)" >/dev/null
late=$(lease ", \"resourceVersion\": \"$version\"" a)
stale=$(ask PUT $leases/sku-42 "$late")
ask DELETE $leases/sku-42 >/dev/null
gone=$(ask PUT $leases/sku-42 "$late")
ask DELETE $leases/sku-42 >/dev/null
named=$(ask PUT $leases/sku-42 "$(lease ", \"resourceVersion\": \"$version\", \"uid\": \"$uid\"" a)")
ask POST $maps '{"metadata": {"name": "sku-42"}}' >/dev/null
late="{\"metadata\": {\"name\": \"sku-42\", \"resourceVersion\": \"$(field resourceVersion)\"}}"
ask DELETE $maps/sku-42 >/dev/null
map=$(ask PUT $maps/sku-42 "$late")

echo "PUT of version 1 over version 2:             $stale"
echo "the same PUT after a DELETE:                 $gone"
echo "with the uid:                                $named"
echo "a ConfigMap, the same PUT after a DELETE:    $map"
[ "$stale $gone $named $map" = '409 201 409 404' ] || { echo "the behaviour has changed"; exit 1; }
