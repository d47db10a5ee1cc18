//go:build apiserver

package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/resource"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/kubeserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// places are the paths of kinds.
var places = map[string]string{
	"ConfigMap": "/api/v1/namespaces/shop/configmaps/", "PersistentVolumeClaim": "/api/v1/namespaces/shop/persistentvolumeclaims/",
	"Service": "/api/v1/namespaces/shop/services/", "Deployment": "/apis/apps/v1/namespaces/shop/deployments/",
	"CronJob": "/apis/batch/v1/namespaces/shop/cronjobs/", "Job": "/apis/batch/v1/namespaces/shop/jobs/",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/", "ServiceAccount": "/api/v1/namespaces/shop/serviceaccounts/",
	"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/",
}

// apply does to an object what "kubectl apply --server-side" does.
func apply(t *testing.T, k *kubeserver.Server, kind, name, text string) (code int, answer string) {
	t.Helper()
	require.Contains(t, places, kind)
	code, answer, err := k.Do(t.Context(), http.MethodPatch, places[kind]+name+"?fieldManager=tests&fieldValidation=Strict", "application/apply-patch+yaml", []byte(text))
	require.NoError(t, err)
	return code, answer
}

// A real API server takes the example, then another version with other settings, and then the first one again; each
// twice.
func TestAPIServer_TakesEachVersionAfterTheOther(t *testing.T) {
	k, err := kubeserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Stop(context.Background())) })
	code, answer, err := k.Do(t.Context(), http.MethodPost, "/api/v1/namespaces", "application/json", []byte(`{"metadata": {"name": "shop"}}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, code, answer)

	first := build(t, example)
	for i, objects := range [][]*resource.Resource{first, build(t, changed(t)), first} {
		for _, r := range slices.Concat(objects, objects) {
			text, err := r.AsYAML()
			require.NoError(t, err)
			code, answer := apply(t, k, r.GetKind(), r.GetName(), string(text))
			require.Contains(t, []int{http.StatusOK, http.StatusCreated}, code, answer)
		}
		_, deployment, err := k.Do(t.Context(), http.MethodGet, places["Deployment"]+"inventory", "", nil)
		require.NoError(t, err)
		image := fmt.Sprintf(`"image":"ghcr.io/fencekit/inventory:v0.%d.0"`, 1+i%2)
		require.Equal(t, 2, strings.Count(deployment, image+`,"args"`), deployment)
	}

	// What it is about: this server refuses the pods of a Job that is there already.
	job := func(tag string) (int, string) {
		return apply(t, k, "Job", "migrate", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, namespace: shop}\n"+
			"spec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: 'fencectl:"+tag+"'}]}}}\n")
	}
	code, answer = job("v0.1.0")
	require.Equal(t, http.StatusCreated, code, answer)
	code, answer = job("v0.2.0")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Contains(t, answer, "field is immutable")
}
