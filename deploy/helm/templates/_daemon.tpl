{{- define "fedboost.labels" -}}
app.kubernetes.io/name: fedboost
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "fedboost.secret" -}}
{{ .daemon.secret | default (printf "%s-%s" .root.Release.Name .daemon.name) }}
{{- end }}

{{- /* The settings file of a daemon: the operator's, under what only the chart knows. A node may
       have many cores, and each worker takes memory: as many as the limit of memory is for. */ -}}
{{- define "fedboost.settings" -}}
{{- $certs := "/run/fedboost/certs" }}
{{- $ours := dict "name" .daemon.name "listen" "0.0.0.0:7100" "logs" "json" }}
{{- $_ := set $ours "tls" (dict "ca" (printf "%s/ca.crt" $certs) "cert" (printf "%s/tls.crt" $certs) "key" (printf "%s/tls.key" $certs)) }}
{{- if .root.Values.metrics.enabled }}
{{- $_ := set $ours "metrics" (dict "listen" "0.0.0.0:9100" "allow_remote" true) }}
{{- end }}
{{- if .daemon.page }}
{{- $_ := set $ours "page" (merge (dict "listen" (printf "0.0.0.0:%d" (int .daemon.page)) "allow_remote" true) (deepCopy (get .daemon.settings "page" | default dict))) }}
{{- end }}
{{- $absent := dict }}
{{- if ne .role "relay" }}
{{- $_ := set $ours "store" "/var/lib/fedboost/store" }}
{{- $_ := set $absent "workers" 2 }}
{{- end }}
{{- toYaml (merge $ours (deepCopy .daemon.settings) $absent) }}
{{- end }}

{{- define "fedboost.daemon" -}}
{{- $full := printf "%s-%s" .root.Release.Name .daemon.name }}
{{- $command := ternary "party" .role (eq .role "aggregator") }}
{{- $image := ternary .root.Values.image.coordinator .root.Values.image.repository (has .role (list "coordinator" "relay")) }}
{{- $speaks := ternary "https" "grpc" (eq .role "relay") }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $full }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
data:
  daemon.yaml: |
    {{- include "fedboost.settings" . | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .daemon.name }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
  {{- with .daemon.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .daemon.service.type }}
  selector: {{- include "fedboost.labels" . | nindent 4 }}
  ports:
    - {name: {{ $speaks }}, port: 7100, targetPort: {{ $speaks }}, appProtocol: {{ $speaks }}}
    {{- if .root.Values.metrics.enabled }}
    - {name: metrics, port: 9100, targetPort: metrics}
    {{- end }}
    {{- with .daemon.page }}
    - {name: page, port: {{ int . }}, targetPort: page, appProtocol: https}
    {{- end }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $full }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
spec:
  serviceName: {{ .daemon.name }}
  replicas: 1  # a daemon is one process; its store has one owner
  selector:
    matchLabels: {{- include "fedboost.labels" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "fedboost.labels" . | nindent 8 }}
      annotations:
        checksum/settings: {{ include "fedboost.settings" . | sha256sum }}
        {{- with .daemon.annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - {name: {{ . }}}
        {{- end }}
      {{- end }}
      {{- range $key := list "nodeSelector" "tolerations" "affinity" }}
      {{- with index $.daemon $key }}
      {{ $key }}: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: {{ .root.Values.image.user }}
        runAsGroup: {{ .root.Values.image.user }}
        fsGroup: {{ .root.Values.image.user }}
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: fedboost
          image: "{{ $image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ $command }}, serve, --config, /etc/fedboost/daemon.yaml]
          env:
            - {name: HOME, value: /var/lib/fedboost}
            - {name: FEDBOOST_CONFIG, value: /etc/fedboost/daemon.yaml}
            {{- with .daemon.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: {{ $speaks }}, containerPort: 7100}
            {{- if .root.Values.metrics.enabled }}
            - {name: metrics, containerPort: 9100}
            {{- end }}
            {{- with .daemon.page }}
            - {name: page, containerPort: {{ int . }}}
            {{- end }}
          {{- if eq .role "relay" }}
          startupProbe: {tcpSocket: {port: {{ $speaks }}}, periodSeconds: 2, failureThreshold: 60}
          readinessProbe: {tcpSocket: {port: {{ $speaks }}}, periodSeconds: 5}
          livenessProbe: {tcpSocket: {port: {{ $speaks }}}, periodSeconds: 10, failureThreshold: 6}
          {{- else }}
          # Kubernetes' own gRPC probe has no certificate. Each check starts a process, for 0.3 s of a
          # core. Kernels may be compiled at the first start; a party is not ill because another is down.
          startupProbe: {exec: {command: [fedboost, health, --live]}, periodSeconds: 5, timeoutSeconds: 6, failureThreshold: 24}
          readinessProbe: {exec: {command: [fedboost, health]}, periodSeconds: 10, timeoutSeconds: 6}
          livenessProbe: {exec: {command: [fedboost, health, --live]}, periodSeconds: 20, timeoutSeconds: 6, failureThreshold: 3}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          resources:
            requests: {cpu: {{ .daemon.cpu | quote }}, memory: {{ .daemon.memory }}}
            limits: {memory: {{ .daemon.memory }}}
          volumeMounts:
            - {name: settings, mountPath: /etc/fedboost, readOnly: true}
            - {name: certificates, mountPath: /run/fedboost/certs, readOnly: true}
            {{- if ne .role "relay" }}
            - {name: store, mountPath: /var/lib/fedboost}
            {{- end }}
            - {name: scratch, mountPath: /tmp}
            {{- if and (eq .role "party") .daemon.tables }}
            - {name: tables, mountPath: /data, readOnly: true}
            {{- end }}
            {{- with .daemon.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ $full }}}
        - name: certificates
          secret: {secretName: {{ include "fedboost.secret" . }}, defaultMode: 0440}
        - name: scratch
          emptyDir: {medium: Memory, sizeLimit: 64Mi}
        {{- if and (eq .role "party") .daemon.tables }}
        - name: tables
          persistentVolumeClaim: {claimName: {{ .daemon.tables }}, readOnly: true}
        {{- end }}
        {{- with .daemon.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  {{- if ne .role "relay" }}
  volumeClaimTemplates:
    - metadata: {name: store}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .daemon.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .daemon.storage }}}}
  {{- end }}
{{- if not .daemon.secret }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $full }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
spec:
  secretName: {{ include "fedboost.secret" . }}
  commonName: {{ .daemon.name }}
  duration: {{ mul .root.Values.certificates.days 24 }}h
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  usages: [digital signature, server auth, client auth]
  uris: ["fedboost:{{ $command }}:{{ .daemon.name }}"]
  dnsNames:
    - {{ .daemon.name }}
    - {{ .daemon.name }}.{{ .root.Release.Namespace }}.svc
  issuerRef:
    name: {{ required "certificates.issuer, or a secret for each daemon" .root.Values.certificates.issuer }}
    kind: {{ .root.Values.certificates.kind }}
{{- end }}
{{- if .root.Values.network.policies }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $full }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "fedboost.labels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports: [{port: {{ $speaks }}}]
      from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: fedboost
              app.kubernetes.io/instance: {{ .root.Release.Name }}
        {{- with .root.Values.network.from }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if and .daemon.page .root.Values.network.pages }}
    - ports: [{port: page}]
      from: {{- toYaml .root.Values.network.pages | nindent 8 }}
    {{- end }}
    {{- if .root.Values.metrics.enabled }}
    - ports: [{port: metrics}]
      from:
        - podSelector: {{ if .root.Values.metrics.from }}{matchLabels: {{ toJson .root.Values.metrics.from }}}{{ else }}{}{{ end }}
    {{- end }}
{{- end }}
{{- if and .root.Values.metrics.enabled .root.Values.metrics.serviceMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $full }}
  labels: {{- include "fedboost.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "fedboost.labels" . | nindent 6 }}
  endpoints: [{port: metrics}]
{{- end }}
{{- end }}
