// Renders the Helm chart and decodes manifests into the types of Kubernetes, strictly: an unknown
// field, or a value of another type, is an error.
//
//	kubernetes render CHART [KEY=VALUE...]   prints the manifests of the chart
//	kubernetes check FILE...                 decodes manifests; prints one line for each object
//	kubernetes fields FILE...                prints the fields that manifests use, with their types
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "render":
		return render(args[1], args[2:])
	case len(args) >= 2 && args[0] == "check":
		return eachObject(args[1:], func(document []byte) error {
			object, kind, err := decode(document)
			if err == nil {
				fmt.Printf("%s %s\n", kind, object.GetName())
			}
			return err
		})
	case len(args) >= 2 && args[0] == "fields":
		return fields(args[1:])
	}
	return fmt.Errorf("usage: kubernetes render CHART [KEY=VALUE...] | check FILE... | fields FILE...")
}

func render(dir string, settings []string) error {
	chart, err := loader.Load(dir)
	if err != nil {
		return fmt.Errorf("cannot load the chart: %w", err)
	}
	values := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return fmt.Errorf("cannot parse %q: %w", setting, err)
		}
	}
	options := chartutil.ReleaseOptions{Name: "topdeck", Namespace: "topdeck", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return fmt.Errorf("cannot read the values: %w", err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return fmt.Errorf("cannot render: %w", err)
	}
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Printf("---\n%s\n", text)
		}
	}
	return nil
}

// eachObject calls a function with each document of the files.
func eachObject(paths []string, call func([]byte) error) error {
	count := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var content any
			if err := yaml.Unmarshal(document, &content); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if content == nil {
				continue
			}
			if err := call(document); err != nil {
				return fmt.Errorf("%s: %w\n%s", path, err, document)
			}
			count++
		}
	}
	if count == 0 {
		return fmt.Errorf("no manifest")
	}
	return nil
}

// decode decodes a manifest strictly and returns it with its kind.
func decode(document []byte) (metav1.Object, string, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, "", err
	}
	var object metav1.Object
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 StatefulSet":
		object = &appsv1.StatefulSet{}
	case "apps/v1 DaemonSet":
		object = &appsv1.DaemonSet{}
	case "v1 ConfigMap":
		object = &corev1.ConfigMap{}
	case "v1 Service":
		object = &corev1.Service{}
	default:
		return nil, "", fmt.Errorf("found %s %s, expected a known kind", kind.APIVersion, kind.Kind)
	}
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return nil, "", fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return object, kind.Kind, nil
}

// Keys below these fields are chosen by users, and are not listed.
var freeKeys = []string{"labels", "matchLabels", "selector", "data", "requests", "limits"}

func fields(paths []string) error {
	found := map[string]string{}
	err := eachObject(paths, func(document []byte) error {
		object, kind, err := decode(document)
		if err != nil {
			return err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return err
		}
		return walk(kind, content, reflect.TypeOf(object).Elem(), found)
	})
	if err != nil {
		return err
	}
	fmt.Println("# Fields of Kubernetes that packaging/kubernetes uses, with their types.")
	fmt.Println("# Written by testdata/kubernetes/main.go.")
	for _, path := range slices.Sorted(maps.Keys(found)) {
		fmt.Printf("%s %s\n", path, found[path])
	}
	return nil
}

// walk adds the types of the fields of content, which is of the type t.
func walk(path string, content any, t reflect.Type, found map[string]string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeOf(intstr.IntOrString{}), reflect.TypeOf(resource.Quantity{}):
		found[path] = "number|text"
		return nil
	}
	switch t.Kind() {
	case reflect.String:
		found[path] = "text"
	case reflect.Bool:
		found[path] = "bool"
	case reflect.Int, reflect.Int32, reflect.Int64:
		found[path] = "number"
	case reflect.Slice:
		found[path] = "list"
		items, _ := content.([]any)
		for _, item := range items {
			if err := walk(path+"[]", item, t.Elem(), found); err != nil {
				return err
			}
		}
	case reflect.Map:
		found[path] = "object"
		name := path[strings.LastIndex(path, ".")+1:]
		if !slices.Contains(freeKeys, name) {
			return fmt.Errorf("%s is a map, whose keys are not listed as free", path)
		}
	case reflect.Struct:
		found[path] = "object"
		members, _ := content.(map[string]any)
		for key, member := range members {
			memberType, ok := fieldType(t, key)
			if !ok {
				return fmt.Errorf("%s has no field %s", path, key)
			}
			if err := walk(path+"."+key, member, memberType, found); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s is of an unknown type %s", path, t)
	}
	return nil
}

// fieldType finds a field by its name in JSON, also in embedded types.
func fieldType(t reflect.Type, key string) (reflect.Type, bool) {
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == key {
			return field.Type, true
		}
	}
	return nil, false
}
