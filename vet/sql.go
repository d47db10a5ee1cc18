package vet

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// write is a table.column that a statement sets.
type write struct {
	column  string
	params  []int // that become its value, unless that depends on what it has
	updates bool  // in rows that are there, of whatever kind
}

var (
	ignored  = regexp.MustCompile(`--[^\n]*|"`)
	selects  = regexp.MustCompile(`(?s)\bselect\s(.*?)\sfrom\s+([\w.]+)`)
	updates  = regexp.MustCompile(`(?s)\bupdate\s+(?:only\s+)?([\w.]+)(?:\s+as)?(?:\s+\w+)?\s+set\s+(.*?)(?:\s(?:where|from)\s(.*?))?(?:\sreturning\s.*)?$`)
	inserts  = regexp.MustCompile(`(?s)\binsert\s+into\s+([\w.]+)\s*\(([^)]*)\)\s*values\s*\((.*?)\)(?:.*\bdo\s+update\s+set\s+(.*?)(?:\swhere\s(.*?))?)?(?:\sreturning\s.*)?$`)
	setting  = regexp.MustCompile(`(?:^|,)\s*(\w+)\s*=((?:[^,()]|\([^()]*\))*)`)
	named    = regexp.MustCompile(`(?:\w+\.)*([a-z_]\w*)`)
	numbered = regexp.MustCompile(`\$(\d+)`)
)

// parse returns each table.column that a statement selects or sets, as far as it understands the statement.
func parse(sql string) (reads []string, writes []write) {
	set := func(table, column, to, condition string, update bool) {
		w := write{column: table + "." + column, updates: update && !strings.Contains(condition, "'")}
		for _, m := range numbered.FindAllStringSubmatch(to, -1) {
			if n, _ := strconv.Atoi(m[1]); !slices.Contains(names(to+" "+condition), column) {
				w.params = append(w.params, n)
			}
		}
		writes = append(writes, w)
	}
	sql = ignored.ReplaceAllString(strings.ToLower(sql), "")
	for _, m := range selects.FindAllStringSubmatch(sql, -1) {
		for _, name := range names(m[1]) {
			reads = append(reads, m[2]+"."+name)
		}
	}
	changes := updates.FindAllStringSubmatch(sql, -1)
	for _, m := range inserts.FindAllStringSubmatch(sql, -1) {
		values := strings.Split(m[3], ",")
		for i, column := range names(m[2])[:min(len(values), len(names(m[2])))] {
			set(m[1], column, values[i], "", false)
		}
		changes = append(changes, []string{"", m[1], m[4], m[5]})
	}
	for _, m := range changes {
		for _, item := range setting.FindAllStringSubmatch(m[2], -1) {
			set(m[1], item[1], item[2], m[3], true)
		}
	}
	return reads, writes
}

func names(text string) (found []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
