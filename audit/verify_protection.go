package audit

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/fencekit/fencekit/storage/postgres"
)

// uniqueKeys are the keys without which rows could be doubled, with their columns.
var uniqueKeys = map[string]string{
	"unique key history_pkey of the table history":         "resource, seq",
	"unique key resource_pkey of the table resource":       "id",
	"unique key resource_name_key of the table resource":   "name",
	"unique key setting_pkey of the table setting":         "one",
	"unique key checkpoint_pkey of the table checkpoint":   "resource",
	"unique key operation_pkey of the table operation":     "resource, key",
	"unique key hold_pkey of the table hold":               "name",
	"unique key epoch_raise_pkey of the table epoch_raise": "epoch",
}

var (
	triggerPattern  = regexp.MustCompile(`(?s)create trigger (\w+) [^;]*? on \.(\w+)\s[^;]*`)
	createPattern   = regexp.MustCompile(`create (?:function|procedure) `)
	functionPattern = regexp.MustCompile(`(?s)^"\w+"\.(\w+)\(.*?\nlanguage ([^\n]*) as \$\$(.*?)\$\$;`)
)

// protection returns what the migrations make in a schema, whose name is quoted, to protect its
// tables: the definition of each trigger and unique key, and of each function or procedure its
// language, settings and the hash of its text. Those in standard SQL have no text to compare.
func protection(schema string) (map[string]string, error) {
	migrations, err := postgres.Migrations(strings.Trim(schema, `"`))
	if err != nil {
		return nil, err
	}
	made := maps.Clone(uniqueKeys)
	for _, m := range migrations {
		for _, t := range triggerPattern.FindAllStringSubmatch(strings.ReplaceAll(m.SQL, schema+".", "."), -1) {
			made["trigger "+t[1]+" of the table "+t[2]] = strings.Join(strings.Fields(t[0]), " ")
		}
		for _, text := range createPattern.Split(m.SQL, -1) {
			if f := functionPattern.FindStringSubmatch(text); f != nil {
				made["function "+f[1]] = fmt.Sprintf("%s as %x", strings.NewReplacer("'", "", " volatile", "").Replace(strings.ToLower(f[2])), sha256.Sum256([]byte(f[3])))
			}
		}
	}
	return made, nil
}
