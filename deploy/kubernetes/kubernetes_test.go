// Package kubernetes tests the manifests beside it. It is a module of its own, so that who imports Fencekit
// needs nothing of Kubernetes.
package kubernetes

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const example = "overlays/example"

// secrets are those that the example says how to make.
var secrets = []string{"owner", "shop", "audit", "anchor-key"}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// decode reads a document strictly into the type of its kind.
func decode(t *testing.T, document []byte) any {
	t.Helper()
	var kind struct {
		APIVersion, Kind string
	}
	require.NoError(t, yaml.Unmarshal(document, &kind))
	object, known := map[string]any{
		"apps/v1 Deployment":                         &appsv1.Deployment{},
		"batch/v1 CronJob":                           &batchv1.CronJob{},
		"batch/v1 Job":                               &batchv1.Job{},
		"policy/v1 PodDisruptionBudget":              &policyv1.PodDisruptionBudget{},
		"v1 ConfigMap":                               &corev1.ConfigMap{},
		"v1 PersistentVolumeClaim":                   &corev1.PersistentVolumeClaim{},
		"v1 Service":                                 &corev1.Service{},
		"v1 ServiceAccount":                          &corev1.ServiceAccount{},
		"rbac.authorization.k8s.io/v1 Role":          &rbacv1.Role{},
		"rbac.authorization.k8s.io/v1 RoleBinding":   &rbacv1.RoleBinding{},
		"kustomize.config.k8s.io/v1alpha1 Component": &types.Kustomization{},
		" ": &types.Kustomization{}, // which need not say so
	}[kind.APIVersion+" "+kind.Kind]
	require.True(t, known, "%s", document)
	require.NoError(t, yaml.UnmarshalStrict(document, object), "%s", document)
	return object
}

// built returns what the example consists of.
func built(t *testing.T) (objects []any) {
	t.Helper()
	for _, r := range build(t, example) {
		text, err := r.AsYAML()
		require.NoError(t, err)
		objects = append(objects, decode(t, text))
	}
	return objects
}

func build(t *testing.T, dir string) []*resource.Resource {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	for _, r := range all.Resources() {
		require.Equal(t, "shop", r.GetNamespace())
	}
	return all.Resources()
}

// changed is a copy of the manifests whose example has another version, other settings, and Leases for locks.
func changed(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(".")))
	path := filepath.Join(dir, example, "kustomization.yaml")
	text := strings.NewReplacer("newTag: v0.1.0", "newTag: v0.2.0", "PGHOST=postgres", "PGHOST=other").Replace(read(t, path))
	require.NotEqual(t, read(t, path), text)
	text += "components: [../../components/leases]\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return filepath.Join(dir, example)
}

// Kubernetes refuses to change the pods of a Job, the selector of a Deployment and what a claim asks for.
func TestManifests_AnotherVersionChangesNothingImmutable(t *testing.T) {
	immutable := func(objects []*resource.Resource) map[string]any {
		all := map[string]any{}
		for _, r := range objects {
			for kind, path := range map[string]string{"Job": "spec.template", "Deployment": "spec.selector", "PersistentVolumeClaim": "spec"} {
				if r.GetKind() == kind {
					value, err := r.GetFieldValue(path)
					require.NoError(t, err)
					all[kind+"/"+r.GetName()] = value
				}
			}
		}
		return all
	}
	now, then := immutable(build(t, example)), immutable(build(t, changed(t)))
	require.Len(t, now, 2)
	for name, value := range then {
		if before, is := now[name]; is {
			require.Equal(t, before, value, name)
		}
	}
}

// pods returns the templates of the objects' pods, by the objects' names.
func pods(objects []any) map[string]corev1.PodTemplateSpec {
	all := map[string]corev1.PodTemplateSpec{}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			all[o.Name] = o.Spec.Template
		case *batchv1.Job:
			all[o.Name] = o.Spec.Template
		case *batchv1.CronJob:
			all[o.Name] = o.Spec.JobTemplate.Spec.Template
		}
	}
	return all
}

func containers(pod corev1.PodTemplateSpec) []corev1.Container {
	return append(pod.Spec.InitContainers, pod.Spec.Containers...)
}

func TestManifests_HaveNoUnknownField(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			files++
			for document := range bytes.SplitSeq([]byte(read(t, path)), []byte("\n---\n")) {
				decode(t, document)
			}
		}
		return err
	}))
	require.Equal(t, 7, files)
}

func TestManifests_AgreeWithEachOther(t *testing.T) {
	objects := built(t)
	templates := pods(objects)
	require.Len(t, templates, 5)
	labels, configs, claims := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			require.Equal(t, o.Spec.Selector.MatchLabels, o.Spec.Template.Labels)
			labels = o.Spec.Template.Labels
		case *corev1.ConfigMap:
			configs[o.Name] = true
		case *corev1.PersistentVolumeClaim:
			claims[o.Name] = true
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Service:
			require.Equal(t, labels, o.Spec.Selector)
			require.Equal(t, "http", o.Spec.Ports[0].TargetPort.String())
		case *policyv1.PodDisruptionBudget:
			if o.Name != "etcd" {
				require.Equal(t, labels, o.Spec.Selector.MatchLabels)
			}
		}
	}
	for name, pod := range templates {
		volumes := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = true
			if v.Secret != nil {
				require.Contains(t, secrets, v.Secret.SecretName, name)
			} else {
				require.True(t, claims[v.PersistentVolumeClaim.ClaimName], name)
			}
		}
		for _, c := range containers(pod) {
			for _, from := range c.EnvFrom {
				if from.SecretRef != nil {
					require.Contains(t, secrets, from.SecretRef.Name, name)
				} else {
					require.True(t, configs[from.ConfigMapRef.Name], name)
				}
			}
			for _, m := range c.VolumeMounts {
				require.True(t, volumes[m.Name], name)
			}
		}
	}
	text := read(t, example+"/kustomization.yaml")
	for _, name := range secrets {
		require.Contains(t, text, "create secret generic "+name+" ")
	}
}

// Guard.Check decides on readiness, no server on liveness, and what stops has time for it.
func TestManifests_TheServiceIsProbedAndStopped(t *testing.T) {
	pod := pods(built(t))["inventory"].Spec
	c := pod.Containers[0]
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	require.Equal(t, c.Ports[0].Name, c.ReadinessProbe.HTTPGet.Port.String())
	require.Equal(t, c.Ports[0].Name, c.LivenessProbe.HTTPGet.Port.String())
	require.EqualValues(t, 45, *pod.TerminationGracePeriodSeconds)
	require.Zero(t, c.Resources.Limits.Cpu().MilliValue())
}

func TestManifests_NoContainerHasRights(t *testing.T) {
	for name, pod := range pods(built(t)) {
		require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot, name)
		require.False(t, *pod.Spec.AutomountServiceAccountToken, name)
		for _, c := range containers(pod) {
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		}
	}
}

// The example runs the images that the last release published; before the first release, those that it will.
func TestManifests_NameTheImagesOfTheRelease(t *testing.T) {
	var release struct {
		DockersV2 []struct {
			Images, Tags []string
		} `json:"dockers_v2"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../../.goreleaser.yaml")), &release))
	version := "0.1.0"
	if last := regexp.MustCompile(`(?m)^## \[(\d\S*)\]`).FindStringSubmatch(read(t, "../../CHANGELOG.md")); last != nil {
		version = last[1]
	}
	published := map[string]bool{}
	for _, d := range release.DockersV2 {
		require.Equal(t, []string{"{{ .Tag }}"}, d.Tags)
		published[strings.Join(d.Images, " ")+":v"+version] = false
	}
	for name, pod := range pods(built(t)) {
		for _, c := range containers(pod) {
			require.Contains(t, published, c.Image, name)
			published[c.Image] = true
		}
	}
	require.Len(t, published, 2)
	require.NotContains(t, published, false)
}
