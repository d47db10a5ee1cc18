package service

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"unicode/utf8"
)

// valid checks a value against a schema, with the words of JSON Schema that
// openapi.yaml uses. An unknown word is an error, lest it be taken for checked.
func (d *description) valid(node, value any, at string) error {
	schema, ok := d.resolve(node).(map[string]any)
	if !ok {
		return fmt.Errorf("%s: no schema: %v", at, node)
	}
	for word, want := range schema {
		if err := d.word(schema, word, want, value); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

func (d *description) word(schema map[string]any, word string, want, value any) error {
	good := true
	switch word {
	case "description":
	case "properties", "additionalProperties", "required":
		return d.object(schema, value)
	case "items":
		items, _ := value.([]any) // its type is another word's
		for i, item := range items {
			if err := d.valid(want, item, fmt.Sprint(i)); err != nil {
				return err
			}
		}
	case "oneOf":
		return d.oneOf(want.([]any), value)
	case "type":
		good = isType(want.(string), value)
	case "const":
		good = fmt.Sprint(want) == fmt.Sprint(value)
	case "enum":
		good = slices.Contains(want.([]any), value)
	case "pattern":
		text, isText := value.(string)
		good = isText && regexp.MustCompile(want.(string)).MatchString(text)
	case "minimum":
		good = isType("number", value) && value.(float64) >= float64(want.(int))
	case "maximum":
		good = isType("number", value) && value.(float64) <= float64(want.(int))
	case "minLength":
		text, isText := value.(string)
		good = isText && utf8.RuneCountInString(text) >= want.(int)
	case "minItems":
		items, isArray := value.([]any)
		good = isArray && len(items) >= want.(int)
	default:
		return fmt.Errorf("the checker doesn't know %q", word)
	}
	if !good {
		return fmt.Errorf("%v is not what %s %v allows", value, word, want)
	}
	return nil
}

func isType(name string, value any) bool {
	number, isNumber := value.(float64)
	switch name {
	case "string":
		_, ok := value.(string)
		return ok
	case "object":
		_, ok := value.(map[string]any)
		return ok
	case "array":
		_, ok := value.([]any)
		return ok
	case "integer":
		return isNumber && number == math.Trunc(number)
	case "number":
		return isNumber
	}
	return false
}

func (d *description) object(schema map[string]any, value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is not an object", value)
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			return fmt.Errorf("%q is missing", name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, member := range object {
		property, ok := properties[name]
		if !ok {
			property = schema["additionalProperties"]
		}
		if _, ok := property.(map[string]any); !ok {
			return fmt.Errorf("%q is not described", name)
		}
		if err := d.valid(property, member, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *description) oneOf(schemas []any, value any) error {
	matching := 0
	var reasons []error
	for _, schema := range schemas {
		if err := d.valid(schema, value, "one of"); err != nil {
			reasons = append(reasons, err)
		} else {
			matching++
		}
	}
	if matching != 1 {
		return fmt.Errorf("%d of %d match: %v", matching, len(schemas), reasons)
	}
	return nil
}
