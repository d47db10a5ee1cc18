// Package configdoc compares a Config with its table in docs/configuration.md. It
// is for the tests of the package that has the Config.
package configdoc

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Check fails unless the section that is named after a Config, such as "guard.Config", has
// a row for each exported field of defaults, which has the defaults filled in, and no other
// rows. A default that is a duration, string or number other than zero has to stand in the
// table as such; others are described in words. page is the path of docs/configuration.md.
// Fields whose default differs from machine to machine are named in varies.
func Check(t testing.TB, page, section string, defaults any, varies ...string) {
	t.Helper()
	rows, err := read(page, section)
	if err != nil {
		t.Fatal(err)
	}
	config := reflect.ValueOf(defaults)
	for i := range config.NumField() {
		field := config.Type().Field(i)
		said, there := rows[field.Name]
		delete(rows, field.Name)
		switch want, fixed := text(config.Field(i)); {
		case !field.IsExported():
		case !there:
			t.Errorf("docs/configuration.md has no row for %s.%s", section, field.Name)
		case fixed && !slices.Contains(varies, field.Name) && said != want:
			t.Errorf("docs/configuration.md says that %s.%s is %q by default; it is %q", section, field.Name, said, want)
		case said == "":
			t.Errorf("docs/configuration.md doesn't say what %s.%s is by default", section, field.Name)
		}
	}
	for name := range rows {
		t.Errorf("docs/configuration.md has a row for %s.%s, which is not there", section, name)
	}
}

// text returns how the table has to write a value, if that is fixed.
func text(v reflect.Value) (written string, fixed bool) {
	switch value := v.Interface().(type) {
	case time.Duration:
		return units(value), value != 0
	case string:
		return value, value != ""
	case bool:
		return map[bool]string{false: "off", true: "on"}[value], true
	}
	if v.Kind() == reflect.String {
		return v.String(), v.Len() > 0
	}
	if v.CanInt() || v.CanUint() {
		return fmt.Sprint(v.Interface()), !v.IsZero()
	}
	return "", false
}

// units puts a space between number and unit: 10 s.
func units(d time.Duration) string {
	return regexp.MustCompile(`(\d)([a-z]+)`).ReplaceAllString(d.String(), "$1 $2")
}

// read returns the defaults in the rows of a section, by field.
func read(page, section string) (map[string]string, error) {
	source, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	_, rest, found := strings.Cut(string(source), "\n## "+section+"\n")
	if !found {
		return nil, fmt.Errorf("docs/configuration.md has no section %s", section)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|").FindAllStringSubmatch(body, -1) {
		rows[row[1]] = strings.Trim(strings.TrimSpace(row[2]), "`")
	}
	return rows, nil
}
