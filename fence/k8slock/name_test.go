package k8slock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// A name is readable where it can't be another resource's.
func TestName_IsTheResourcesAlone(t *testing.T) {
	t.Parallel()
	s, long := &service{prefix: "fencekit"}, strings.Repeat("x", 244)
	require.Equal(t, "fencekit.sku.42", s.name("sku/42"))
	require.Equal(t, "fencekit."+long, s.name(long))
	taken := map[string]string{}
	for _, prefix := range []string{"a", "a-b"} {
		s := &service{prefix: prefix}
		for _, r := range []string{
			"sku/42", "sku.42", "SKU/42", "sku//42", "/sku/42", "sku/42/", "sku/-42", "sku/42-", "sku 42", "b/42", "b-42", "ключ", "\nsku/42", "sku/42\n",
			"x", strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("x", 251), strings.Repeat("x", 252), "b.sku/42",
			hash("ключ"), "b-" + hash("ключ"),
		} {
			name := s.name(r)
			require.Empty(t, validation.IsDNS1123Subdomain(name), "%q", r)
			require.NotContains(t, taken, name, "%q, %q", r, taken[name])
			taken[name] = r
		}
	}
}

func TestNew_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	client := func(qps float32) typed.CoordinationV1Interface {
		return typed.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1", QPS: qps})
	}
	for text, try := range map[string]func() (*Locker, error){
		"an API server":    func() (*Locker, error) { return New(nil, nil) },
		"guardtest":        func() (*Locker, error) { return New(fake.NewClientset().CoordinationV1(), &Config{Namespace: "n"}) },
		"set QPS":          func() (*Locker, error) { return New(client(0), &Config{Namespace: "n"}) },
		"Config.Namespace": func() (*Locker, error) { return New(client(-1), nil) },
		"Config.Prefix":    func() (*Locker, error) { return New(client(-1), &Config{Namespace: "n", Prefix: "a.b"}) },
		"Config.TTL":       func() (*Locker, error) { return New(client(50), &Config{Namespace: "n", TTL: 1}) },
	} {
		_, err := try()
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
}

// Requests that wait in the client until their time is over.
func TestExplain_TheClientsOwnLimit(t *testing.T) {
	t.Parallel()
	s := &service{leases: typed.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1", QPS: 0.001, Burst: 1}).Leases("n")}
	for _, reason := range []fence.UnavailableReason{fence.Unreachable, fence.Limited} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.get(ctx, "r")
		is, err := s.Explain(err)
		require.Equal(t, reason, is, "%v", err)
		require.True(t, guard.SafeToRetry(&fence.UnavailableError{Reason: is, Err: err}))
	}
}
