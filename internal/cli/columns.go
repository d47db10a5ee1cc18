package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// columns returns the names of a row's columns, and its cells, with "" for what is absent.
func columns(row any, times string) (names, cells []string) {
	if other, ok := row.(interface{ Columns() any }); ok {
		row = other.Columns()
	}
	r := reader{times: times}
	r.read(reflect.ValueOf(row), "", false)
	return r.names, r.cells
}

type reader struct {
	times        string // their layout
	names, cells []string
}

var hump = regexp.MustCompile("([a-z0-9])([A-Z])")

// read reads the fields of a struct. Of one that is absent, all cells are "".
func (r *reader) read(row reflect.Value, prefix string, absent bool) {
	for field, value := range row.Fields() {
		inJSON, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		tag := field.Tag.Get("column")
		if tag == "-" || inJSON == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		absent := absent || strings.Contains(options, "omitempty") && isEmpty(value)
		if value.Kind() == reflect.Pointer {
			if value = value.Elem(); !value.IsValid() {
				value, absent = reflect.Zero(field.Type.Elem()), true
			}
		}
		if value.Kind() == reflect.Struct && value.Type() != reflect.TypeFor[time.Time]() {
			r.read(value, prefix+tag, absent)
			continue
		}
		r.names = append(r.names, prefix+cmp.Or(tag, inJSON, strings.ToLower(hump.ReplaceAllString(field.Name, "${1}_$2"))))
		text := ""
		if !absent {
			text = r.text(value)
		}
		r.cells = append(r.cells, text)
	}
}

func isEmpty(value reflect.Value) bool {
	return value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0
}

func (r *reader) text(value reflect.Value) string {
	switch value := value.Interface().(type) {
	case time.Time:
		return value.UTC().Format(r.times)
	case []string:
		return strings.Join(value, "\n")
	}
	if value.Kind() != reflect.Slice {
		return fmt.Sprint(value)
	}
	text, _ := json.Marshal(value.Interface())
	return string(text)
}
