package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardprometheus"
	"github.com/fencekit/fencekit/storage/memory"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// alert is a rule of alerts.yml.
type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yml")), &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// scrape returns what a Guard exports after calls, a rejection, a lost lock and a takeover.
func scrape(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	observer, err := guardprometheus.NewObserver(registry)
	require.NoError(t, err)
	locks, store, ctx := guardtest.NewLockService(), memory.NewStore(), t.Context()
	process := func(label string) *guard.Guard[*memory.Tx] {
		g, err := guard.New(locks.NewLocker(label), store, &guard.Config{Observers: []*guard.Observer{observer}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		return g
	}
	a, b := process("a"), process("b")
	put := func(_ context.Context, tx *memory.Tx) error { return tx.Set("k", "v") }
	require.NoError(t, guard.Do(ctx, a, "sku/1", put))
	require.ErrorIs(t, guard.Do(ctx, a, "sku/1", func(ctx context.Context, tx *memory.Tx) error {
		require.True(t, locks.Lose("sku/1"))
		<-ctx.Done()
		require.NoError(t, guard.Do(t.Context(), b, "sku/1", put))
		return put(ctx, tx)
	}), guard.ErrStaleToken)
	require.NoError(t, guard.Do(ctx, a, "sku/2", func(context.Context, *memory.Tx) error { return nil }, guard.ReadOnly()))
	require.ErrorIs(t, guard.Do(ctx, a.UnderGrant(fence.Grant{Resource: "sku/1", Epoch: 1, Token: 1, Holder: "h"}), "sku/1", put), guard.ErrStaleToken)

	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	return answer.Body.String()
}

var (
	sample = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? `)
	metric = regexp.MustCompile(`\b(?:fence|guard)_[a-z_]+`)
)

// What the dashboard and the alerts ask for is exported, and the dashboard and the guide leave nothing out.
func TestMetrics_AreThoseOfTheDashboardTheAlertsAndTheGuide(t *testing.T) {
	t.Parallel()
	text := scrape(t)
	exported := map[string]bool{}
	for _, found := range sample.FindAllStringSubmatch(text, -1) {
		exported[found[1]] = true
	}
	families := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`).FindAllStringSubmatch(text, -1) {
		families[found[1]] = true
	}

	var expressions []string
	for _, a := range alerts(t) {
		expressions = append(expressions, a.Expr)
	}
	dashboard := expressionsOf(t)
	shown := map[string]bool{}
	for _, expr := range append(expressions, dashboard...) {
		names := metric.FindAllString(expr, -1)
		require.NotEmpty(t, names, expr)
		for _, name := range names {
			require.True(t, exported[name], "%s is not exported: %s", name, expr)
		}
	}
	for _, expr := range dashboard {
		for _, name := range metric.FindAllString(expr, -1) {
			shown[familyOf(name)] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(families)), slices.Sorted(maps.Keys(shown)), "what is exported, and what the dashboard shows")
}

// familyOf returns the metric that a sample belongs to.
func familyOf(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// expressionsOf returns the queries of the dashboard.
func expressionsOf(t *testing.T) (expressions []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(read(t, "grafana/fencekit.json"))))
	require.NoError(t, decoder.Decode(&dashboard))
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				known := v[1] == "__rate_interval" || slices.ContainsFunc(dashboard.Templating.List, func(l struct{ Name string }) bool { return l.Name == v[1] })
				require.True(t, known, "%s: no variable %s", p.Title, v[1])
			}
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

// The manifests for Kubernetes give the inventory flags that it has; internal/fencectl tests those of fencectl.
func TestManifests_TheInventoryTakesItsFlags(t *testing.T) {
	t.Parallel()
	args := regexp.MustCompile(`image: ghcr\.io/fencekit/inventory\n +args:(?: \[(.*)\]\n|((?:\n +- .*)+))`)
	item := regexp.MustCompile(`[^\s,]*[^\s,-][^\s,]*`)
	var commands [][]string
	for _, found := range args.FindAllStringSubmatch(regexp.MustCompile(` #.*`).ReplaceAllString(read(t, "kubernetes/base/inventory.yaml"), ""), -1) {
		commands = append(commands, item.FindAllString(found[1]+found[2], -1))
	}
	require.Len(t, commands, 2)
	initialize, serve := commands[0], commands[1]
	require.Equal(t, "serve", serve[0])
	config, err := service.ParseServe(serve[1:])
	require.NoError(t, err)
	require.Less(t, config.Stop, 45*time.Second)
	require.Equal(t, "init", initialize[0])
	_, err = service.ParseInit(initialize[1:])
	require.NoError(t, err)
}
