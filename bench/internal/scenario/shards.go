package scenario

import (
	"fmt"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// shards are calls on resources that are spread over several servers.
func shards() []Scenario {
	s := Scenario{
		Name:       "shards",
		Title:      "guard.Do on resources spread over 1, 2 and 4 servers, kept, 32 goroutines",
		About:      "Each resource belongs to one of the servers (guard.ShardOf), all of which are on this machine and share its CPUs and its disk. With 2 connections for each server, these bound a server and further ones add to them, until the machine is the bound; with 32 the machine is from the beginning.",
		Baseline:   []string{onServers(1, 2)},
		Goroutines: 32,
		Keys:       load.Spread,
		Metrics:    []result.Metric{result.P50, result.P99, result.ClientCPU, result.PostgresCPU, result.WAL},
	}
	for _, connections := range []int{2, 32} {
		for _, servers := range []int{1, 2, 4} {
			s.Contenders = append(s.Contenders, Contender{
				Name: onServers(servers, connections), Open: contender.Sharded(kept), Fencekit: true, Connections: connections, Shards: servers,
			})
		}
	}
	return []Scenario{s}
}

func onServers(servers, connections int) string {
	return fmt.Sprintf("%s, %d connections each", counted(servers, "server", "servers"), connections)
}
