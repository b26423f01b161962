// A client as a team would write it in Node.js: stock grpc-js, messages from the published protos.
// Usage: node predict.mjs TARGET PROTO_DIRECTORY; prints one line of JSON.
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [target, protoDirectory] = process.argv.slice(2);
const packages = grpc.loadPackageDefinition(
  loader.loadSync(
    [
      "tensorflow_serving/apis/prediction_service.proto",
      "tensorflow_serving/apis/model_service.proto",
    ],
    { includeDirs: [protoDirectory], keepCase: true, longs: Number, enums: String },
  ),
);
const serving = packages.tensorflow.serving;
const credentials = grpc.credentials.createInsecure();
const predictions = new serving.PredictionService(target, credentials);
const models = new serving.ModelService(target, credentials);

function call(client, method, request) {
  const deadline = Date.now() + 30_000;
  return new Promise((resolve) => {
    client[method](request, { deadline }, (error, response) => {
      resolve(error ? { code: grpc.status[error.code], details: error.details } : response);
    });
  });
}

function predict(name, values) {
  return call(predictions, "Predict", {
    model_spec: { name },
    inputs: {
      x: {
        dtype: "DT_FLOAT",
        tensor_shape: { dim: [{ size: values.length }] },
        float_val: values,
      },
    },
  });
}

const answered = await predict("half_plus_two", [1, 2, 5]);
const unknown = await predict("nope", [1]);
const status = await call(models, "GetModelStatus", { model_spec: { name: "half_plus_two" } });
const many = await Promise.all([...Array(100).keys()].map((n) => predict("half_plus_two", [n])));
console.log(
  JSON.stringify({
    values: answered.outputs.y.float_val,
    version: answered.model_spec.version.value,
    unknown,
    states: status.model_version_status.map(({ version, state }) => [version, state]),
    many: many.map((response) => response.outputs.y.float_val[0]),
  }),
);
process.exit(0);
