//go:build apiserver

package k8slock

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/kubeserver"
)

func requireUnavailable(t testing.TB, err error, reason fence.UnavailableReason) {
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, err, &away)
	require.Equal(t, reason, away.Reason, "%v", err)
}

func appOf(t testing.TB, k *kubeserver.Server, namespace, token string) *Locker {
	c, end := connect(k.URL(), token, nil)
	t.Cleanup(end)
	return locker(t, c, &Config{Namespace: namespace, TTL: time.Second})
}

// role gives the user "app" the Role of the manifests, but for one verb.
func role(t testing.TB, namespace, missing string) {
	manifest, err := os.ReadFile("../../deploy/kubernetes/components/leases/role.yaml")
	require.NoError(t, err)
	text, _, _ := strings.Cut(string(manifest), "---")
	text = regexp.MustCompile(`\b`+missing+`\b,? ?`).ReplaceAllString(text, "")
	of := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	do(t, http.MethodPost, of+"/roles", "application/yaml", text)
	do(t, http.MethodPost, of+"/rolebindings", "application/json", `{"metadata": {"name": "leases"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"}, "subjects": [{"kind": "User", "name": "app", "apiGroup": "rbac.authorization.k8s.io"}]}`)
}

// Check misses any right, and leaves nothing.
func TestRefusal_CheckNamesTheRights(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"get", "list", "watch", "create", "update", "delete", ""} {
		n := namespace(t)
		role(t, n, cmp.Or(missing, "none"))
		l := appOf(t, server(t), n, server(t).AppToken())
		var err error
		require.Eventually(t, func() bool { // once the server knows of the Role
			err = l.Check(patient(t))
			return missing == "" && err == nil || missing != "" && strings.Contains(fmt.Sprint(err), "cannot "+missing)
		}, time.Minute, 20*time.Millisecond, "%v", &err)
		if missing != "" {
			requireUnavailable(t, err, fence.Denied)
			require.ErrorContains(t, err, "get, list, watch, create, update and delete on leases")
			require.False(t, guard.SafeToRetry(err))
		}
		left, err := client(t, nil).Leases(n).List(patient(t), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, left.Items)
	}
	err := appOf(t, server(t), "none", server(t).Token()).Check(patient(t))
	requireUnavailable(t, err, "")
	require.ErrorContains(t, err, "make the namespace")
	requireUnavailable(t, appOf(t, server(t), "default", "wrong").Check(patient(t)), fence.Denied)
}

// Priority and fairness, full etcd, no server. What is temporary is said to be.
func TestRefusal_SaysWhatToMend(t *testing.T) {
	t.Parallel()
	k, err := kubeserver.Start(patient(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Stop(patient(t))) })
	post := func(path, body string) {
		code, text, err := k.Do(patient(t), http.MethodPost, "/apis/flowcontrol.apiserver.k8s.io/v1/"+path, "application/json", []byte(body))
		require.NoError(t, err)
		require.Less(t, code, 300, text)
	}
	post("prioritylevelconfigurations", `{"metadata": {"name": "none"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}}`)
	post("flowschemas", `{"metadata": {"name": "none"}, "spec": {"matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "none"}, "rules": [{"subjects": [{"kind": "User", "user": {"name": "app"}}], "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]}]}}`)
	app := appOf(t, k, "default", k.AppToken())
	ctx, stop := context.WithCancel(patient(t))
	errs := make(chan error)
	for range 8 { // one alone is served, even with no share
		go func() {
			for ctx.Err() == nil {
				select {
				case errs <- app.Check(ctx):
				case <-ctx.Done():
				}
			}
		}()
	}
	for err = nil; !strings.Contains(fmt.Sprint(err), "FlowSchema"); err = <-errs {
		require.NoError(t, ctx.Err())
	}
	stop()
	requireUnavailable(t, err, fence.Limited)
	require.True(t, guard.SafeToRetry(err))

	l := appOf(t, k, "default", k.Token())
	etcd, err := k.Etcd().Client(patient(t))
	require.NoError(t, err)
	defer etcd.Close()
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		_, err := pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(patient(t), &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
		require.NoError(t, err)
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	err = l.Check(patient(t))
	requireUnavailable(t, err, fence.NoSpace)
	require.False(t, guard.SafeToRetry(err))
	alarm(pb.AlarmRequest_DEACTIVATE)
	require.NoError(t, l.Check(patient(t)))

	held, err := l.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	require.NoError(t, k.Kill())
	_, err = l.TryAcquire(patient(t), "other")
	requireUnavailable(t, err, fence.Unreachable)
	require.True(t, guard.SafeToRetry(err))
	<-held.Done()
	loss := new(fence.LeaseLostError)
	require.ErrorAs(t, held.Err(), &loss)
	require.Equal(t, fence.LossDeadline, loss.Reason)
}
