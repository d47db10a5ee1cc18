package doctor

import (
	"fmt"
	"strings"
)

// checkShards compares which shards the databases say that they are, and returns a finding for each that
// doesn't belong into one list with those before it. Databases that are no shards need not belong together.
func checkShards(databases []*database) (found []Finding) {
	var before []*database
	for _, d := range databases {
		if d.shard == nil {
			continue
		}
		for _, other := range before {
			if !fit(*other.shard, *d.shard) {
				found = append(found, d.found(shardsDisagree, fmt.Sprintf("%s is %s; %s is %s", other.Name, shardText(*other.shard), d.Name, shardText(*d.shard))))
				break
			}
		}
		before = append(before, d)
	}
	return found
}

// fit reports whether two databases may be shards of one list: postgres.Shard names them "0 of 2, rule 1".
func fit(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	_, of, numbered := strings.Cut(a, " of ")
	_, otherOf, otherNumbered := strings.Cut(b, " of ")
	return a != b && (!numbered || !otherNumbered || of == otherOf)
}

func shardText(shard string) string {
	if shard == "" {
		return "no shard"
	}
	return "shard " + shard
}
