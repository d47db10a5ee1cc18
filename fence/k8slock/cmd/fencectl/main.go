// Command fencectl is that of Fencekit, for locks in Kubernetes too: --locks kubernetes://NAMESPACE?prefix=PREFIX. It
// takes the cluster that KUBECONFIG or ~/.kube/config names, or in a pod that of the pod.
package main

import (
	"context"
	"net/url"
	"time"

	"k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencekit/fencekit/fence/k8slock"
	"github.com/fencekit/fencekit/internal/fencectl"
)

func main() {
	fencectl.Main(fencectl.LockService{URL: "kubernetes://NAMESPACE?prefix=PREFIX", Open: open})
}

func open(_ context.Context, of *url.URL, ttl time.Duration) (fencectl.Locker, func(), error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	cfg.QPS = -1
	client, err := v1.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := k8slock.New(client, &k8slock.Config{Namespace: of.Hostname(), Prefix: of.Query().Get("prefix"), TTL: ttl})
	return l, func() {}, err
}
