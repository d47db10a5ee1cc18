package run

import (
	"maps"
	"runtime"
	"runtime/debug"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
)

// Groups returns all groups, Fencekit's first.
func Groups() []result.Group {
	groups := []result.Group{{Name: result.Fenced, Title: "Fencekit", Recipe: "guard.Do: a lock in etcd, claimed in the database before anything is read, and sealed at COMMIT"}}
	for _, c := range control.All() {
		groups = append(groups, result.Group{Name: c.Name, Title: c.Title, Recipe: c.Recipe, Flaw: c.Flaw, RedByDesign: c.RedByDesign})
	}
	return groups
}

// breaks are the properties of which a control has to violate at least one.
func breaks(group string) []string {
	if c, err := control.ByName(group); err == nil && c.Liveness {
		return []string{check.Progress}
	}
	return check.OfData()
}

func describeScenarios() (all []result.Scenario) {
	for _, s := range scenario.All() {
		all = append(all, result.Scenario{Name: s.Name, Family: s.Family, Summary: s.Summary})
	}
	return all
}

// versions adds the versions of what runs on servers use to the known ones.
func versions(servers *environment.Servers, known map[string]string) map[string]string {
	all := map[string]string{"go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH}
	maps.Copy(all, known)
	if source := servers.PostgresSource(); source != "" {
		all["postgres"] = source
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		all["fencekit"] = info.Main.Version
		for _, module := range info.Deps {
			switch module.Path {
			case "go.etcd.io/etcd/server/v3":
				all["etcd"] = module.Version
			case "github.com/jackc/pgx/v5":
				all["pgx"] = module.Version
			}
		}
	}
	return all
}
