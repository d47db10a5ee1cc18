package cli

import "fmt"

// Format is how data is written; it is a flag's value.
type Format string

const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatJSONL Format = "jsonl"
	FormatCSV   Format = "csv"
)

var formats = []string{string(FormatTable), string(FormatJSON), string(FormatJSONL), string(FormatCSV)}

const formatNames = "table, json, jsonl or csv"

func (f *Format) String() string { return string(*f) }
func (f *Format) Type() string   { return "format" }

func (f *Format) Set(s string) error {
	switch Format(s) {
	case FormatTable, FormatJSON, FormatJSONL, FormatCSV:
		*f = Format(s)
		return nil
	}
	return fmt.Errorf("want %s", formatNames)
}
